//! Import cycles between the files of a crate.
//!
//! A file imports another file if it names an item that the other file defines: in a `use`, in an expression, in a type
//! or in a macro call. Re-exports are followed to the defining file, and a re-export of an item below the file's own
//! module is no import. Test code does not count. Method calls have no path, so they are not seen.

mod graph;
mod imports;
mod modules;
mod names;
mod test_code;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use anyhow::Result;

pub(crate) use graph::ImportCycle;

/// Returns the import cycles of the crate with the root file `root`, the largest first.
///
/// `read` returns the text of a file.
///
/// # Errors
/// When a file cannot be read or parsed.
pub(crate) fn find(root: &Path, read: &dyn Fn(&Path) -> io::Result<String>) -> Result<Vec<ImportCycle>> {
    let tree = modules::ModuleTree::load(root, read)?;
    Ok(graph::cycles(&tree, &imports::collect(&tree)))
}
