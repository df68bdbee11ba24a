//! Everything that can go wrong with a bed.

use std::{io, path::PathBuf};

use crate::tools::ToolsError;

/// Why a bed could not do what was asked. Every text says what was being done, and where to look.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BedError {
    /// The binaries could not be found, built or fetched.
    #[error("cannot get the binaries of the test bed")]
    Tools(#[from] ToolsError),
    /// A file, folder, socket or process call failed.
    #[error("cannot {what}")]
    Io {
        /// What was being done, and to which object.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The program that keeps beds is not built.
    #[error(
        "cannot find the program podward-testbed beside {searched}: run `cargo build -p podward-testbed`, or set PODWARD_TESTBED_BIN"
    )]
    NoKeeper {
        /// The program that was running.
        searched: PathBuf,
    },
    /// The machine or the user cannot run such a bed.
    #[error("{0}")]
    Unsupported(String),
    /// The keeper ended, or said why it can't go on.
    #[error("the keeper of bed {bed} failed: {message}")]
    Keeper {
        /// The bed's id.
        bed: String,
        /// The keeper's own words, or the end of its log.
        message: String,
    },
    /// The process inside that starts processes refused a request.
    #[error("bed cannot {what}: {message}")]
    Refused {
        /// What was asked.
        what: String,
        /// Its answer.
        message: String,
    },
    /// A component ended while it was needed.
    #[error("{name} ended with {exit}; its log is {}, and ends:\n{tail}", log.display())]
    Died {
        /// The component.
        name: String,
        /// How it ended.
        exit: crate::process::Exit,
        /// Where its log is.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// Something was not ready in time.
    #[error("{what} is not ready after {seconds} s; logs are in {}{tail}", logs.display())]
    NotReady {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// The folder with the logs of all components.
        logs: PathBuf,
        /// The last lines of the log that matters, if one does.
        tail: String,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of {of}")]
    Certificate {
        /// Whose.
        of: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A request to the bed's API server failed.
    #[error("cannot {what}")]
    Api {
        /// What was asked of it.
        what: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// A kubeconfig could not be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An image could not be written.
    #[error("cannot write an image for the node")]
    Image(#[from] crate::image::ImageError),
    /// No bed of that name runs, or one does already.
    #[error("{0}")]
    Name(String),
}

/// Adds to an [`io::Error`] what was being done.
pub(crate) trait During<T> {
    /// `what` continues the words "cannot ...".
    fn during(self, what: impl FnOnce() -> String) -> Result<T, BedError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, BedError> {
        self.map_err(|source| BedError::Io { what: what(), source })
    }
}

impl<T> During<T> for nix::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, BedError> {
        self.map_err(|errno| BedError::Io { what: what(), source: errno.into() })
    }
}

impl<T> During<T> for Result<T, kube::Error> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, BedError> {
        self.map_err(|source| BedError::Api { what: what(), source: Box::new(source) })
    }
}
