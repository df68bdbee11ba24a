//! Files that nobody else may read.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result};

/// Writes `text` to the file `path`, readable by its owner alone. Whoever reads the file meanwhile finds all of the old text or all of
/// the new: services that are running read what is written again for the next one.
pub(crate) fn private_file(path: &Path, text: &str) -> Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let new = path.with_added_extension(format!("{}.new", NUMBER.fetch_add(1, Ordering::SeqCst)));
    let file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, path)).with_context(|| format!("write {}", path.display()))
}
