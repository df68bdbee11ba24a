//! Files that nobody else may read.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result};

/// Writes `text` to the file `path`, readable by its owner alone. Who reads it meanwhile sees it whole, old or new: services that are
/// starting read what is written again for the next one.
pub(crate) fn private_file(path: &Path, text: &str) -> Result<()> {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let new = path.with_added_extension(format!("{}.new", FILES.fetch_add(1, Ordering::SeqCst)));
    let file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    let written = written.and_then(|()| std::fs::rename(&new, path));
    written.with_context(|| format!("write {}", path.display()))
}
