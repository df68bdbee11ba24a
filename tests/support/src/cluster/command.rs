//! The description of a program to start.

use std::path::PathBuf;

/// A program to start.
#[derive(Clone, Debug)]
pub struct ServiceCommand {
    /// The name of the process and of its log.
    pub name: String,
    /// The file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}
