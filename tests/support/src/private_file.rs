//! Files that nobody else may read.

use std::{io::Write, path::Path};

use anyhow::{Context, Result};

/// Writes `text` to the file `path`, readable by its owner alone. Whoever reads it meanwhile finds what was there before, or all of
/// the new: services share some of these files, and are started at the same time.
pub(crate) fn private_file(path: &Path, text: &str) -> Result<()> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok::<_, std::io::Error>(())
    };
    write().with_context(|| format!("write {}", path.display()))
}
