//! The errors of finding and building the programs.

use std::path::{Path, PathBuf};

use super::requirement::MissingRequirement;

/// The reason why the programs of a cluster are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    /// The machine lacks requirements. The list is complete and has a command to fix each.
    #[error("this machine lacks what the test cluster needs:\n{}", list(.0))]
    Missing(Vec<MissingRequirement>),

    /// There is no folder to keep the programs in.
    #[error("no folder to keep the test cluster's programs in: set PODWARD_CACHE to one, or HOME")]
    NoCacheFolder,

    /// There are no pins of the version of Kubernetes.
    #[error(
        "PODWARD_TESTBED_KUBERNETES is {named:?}: set it to a version that the test cluster has ({known}), or unset it"
    )]
    UnknownKubernetes {
        /// The value of the variable.
        named: String,
        /// The versions that there are.
        known: String,
    },

    /// A file operation failed.
    #[error("cannot {action} {path}")]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// A command could not be started at all.
    #[error("cannot start `{command}`")]
    Start {
        /// The command line.
        command: String,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// A command ended with a failure.
    #[error("{what} failed ({status}): `{command}` said:\n{output}\n{advice}")]
    Command {
        /// The name of the step.
        what: String,
        /// The command line.
        command: String,
        /// The exit status.
        status: String,
        /// The last lines of its output.
        output: String,
        /// Advice to the user.
        advice: &'static str,
    },

    /// A file that was fetched is not the expected one.
    #[error("{file} has the SHA-256 {found}, not {expected}: it is not the file that was published")]
    Digest {
        /// The name of the file.
        file: &'static str,
        /// The expected digest.
        expected: &'static str,
        /// The digest of what was fetched.
        found: String,
    },
}

impl ToolsError {
    pub(super) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

fn list(missing: &[MissingRequirement]) -> String {
    missing.iter().map(|m| format!("  - {m}")).collect::<Vec<_>>().join("\n")
}
