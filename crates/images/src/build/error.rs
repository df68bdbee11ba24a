//! The errors of a build.

/// The reason why a program could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The command could not be started.
    #[error("cannot run `{command}`; is cargo on the PATH?")]
    Start {
        /// The command line.
        command: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The command failed. Its messages are on the standard error.
    #[error("`{command}` failed ({status}); its messages are above")]
    Failed {
        /// The command line.
        command: String,
        /// The exit status.
        status: String,
    },
    /// Cargo built no program with this name.
    #[error("`{command}` built no program called {bin}")]
    NoProgram {
        /// The command line.
        command: String,
        /// The name of the program.
        bin: String,
    },
}
