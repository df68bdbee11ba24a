//! Files that only their owner can read.

use std::{io::Write, path::Path};

use anyhow::{Context, Result};

/// Writes `text` to the file `path`, readable only by its owner. The write is atomic, because services that start at
/// the same time share some of these files.
pub(crate) fn private_file(path: &Path, text: &str) -> Result<()> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok::<_, std::io::Error>(())
    };
    write().with_context(|| format!("write {}", path.display()))
}
