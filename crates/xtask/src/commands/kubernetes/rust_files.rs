//! The Rust files of a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the paths and texts of all Rust files below `folder`.
///
/// # Errors
/// When a folder cannot be listed or a file cannot be read.
pub(super) fn rust_files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text =
                    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                files.push((path, text));
            }
        }
    }
    Ok(files)
}
