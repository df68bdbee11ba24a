//! Files that nobody else may read.

use std::{io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::{Context, Result};

/// Writes `text` to the file `path`, readable by its owner alone.
pub(crate) fn private_file(path: &Path, text: &str) -> Result<()> {
    let file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("write {}", path.display()))
}
