//! What can go wrong while the programs are looked for or built.

use std::path::{Path, PathBuf};

use super::Missing;

/// Why the programs of a bed are not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    /// The machine lacks things; all of them, each with the command that mends it.
    #[error("this machine lacks what the test bed needs:\n{}", list(.0))]
    Missing(Vec<Missing>),

    /// There is no folder to keep the programs in.
    #[error("no folder to keep the test bed's programs in: set PODWARD_CACHE to one, or HOME")]
    NoCacheFolder,

    /// A file operation failed.
    #[error("cannot {action} {path}")]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A command could not be started at all.
    #[error("cannot start `{command}`")]
    Start {
        /// The command line.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },

    /// A command ended with a failure.
    #[error("{what} failed ({status}): `{command}` said:\n{output}\n{advice}")]
    Command {
        /// The step, for people.
        what: String,
        /// The command line.
        command: String,
        /// The exit status.
        status: String,
        /// The last lines of its output.
        output: String,
        /// What to do about it.
        advice: &'static str,
    },
}

impl ToolsError {
    pub(super) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(|m| format!("  - {m}")).collect::<Vec<_>>().join("\n")
}
