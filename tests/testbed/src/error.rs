//! The errors of test clusters.

use std::{io, path::PathBuf};

use crate::tools::ToolsError;

/// The reason why an operation on a cluster failed. Every message says what was being done and where to look.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestClusterError {
    /// The binaries could not be found, built or fetched.
    #[error("cannot get the binaries of the test cluster")]
    Tools(#[from] ToolsError),
    /// A file, folder, socket or process call failed.
    #[error("cannot {what}")]
    Io {
        /// What was being done, and to which object.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The program that supervises clusters is not built.
    #[error(
        "cannot find the program podward-testbed beside {searched}: run `cargo build -p podward-testbed`, or set PODWARD_TESTBED_BIN"
    )]
    NoSupervisor {
        /// The program that was running.
        searched: PathBuf,
    },
    /// The machine or the user cannot run such a cluster.
    #[error("{0}")]
    Unsupported(String),
    /// The supervisor ended or reported an error.
    #[error("the supervisor of cluster {cluster} failed: {message}")]
    Supervisor {
        /// The cluster's id.
        cluster: String,
        /// The supervisor's message, or the end of its log.
        message: String,
    },
    /// Init, which starts processes in the cluster, refused a request.
    #[error("cluster cannot {what}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The response.
        message: String,
    },
    /// A component ended while it was needed.
    #[error("{name} ended with {exit}; its log is {}, and ends:\n{tail}", log.display())]
    Died {
        /// The component.
        name: String,
        /// How it ended.
        exit: crate::exit::Exit,
        /// Where its log is.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// Something was not ready in time.
    #[error("{what} is not ready after {seconds} s; logs are in {}{tail}", logs.display())]
    NotReady {
        /// The object or condition that is not ready.
        what: String,
        /// The time that was waited.
        seconds: u64,
        /// The folder with the logs of all components.
        logs: PathBuf,
        /// The last lines of the log that explains it, if there is one.
        tail: String,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of {of}")]
    Certificate {
        /// The subject of the certificate.
        of: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A request to the cluster's API server failed.
    #[error("cannot {what}")]
    Api {
        /// The request.
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
    Image(#[from] podward_images::ImageError),
    /// No cluster of that name runs, or one does already.
    #[error("{0}")]
    Name(String),
}

/// Adds the operation that failed to an error.
pub(crate) trait During<T> {
    /// `what` continues the words "cannot ...".
    fn during(self, what: impl FnOnce() -> String) -> Result<T, TestClusterError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, TestClusterError> {
        self.map_err(|source| TestClusterError::Io { what: what(), source })
    }
}

impl<T> During<T> for Result<T, podward_images::ImageError> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, TestClusterError> {
        self.map_err(|error| TestClusterError::Io { what: what(), source: io::Error::other(error) })
    }
}

impl<T> During<T> for nix::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, TestClusterError> {
        self.map_err(|errno| TestClusterError::Io { what: what(), source: errno.into() })
    }
}

impl<T> During<T> for Result<T, kube::Error> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, TestClusterError> {
        self.map_err(|source| TestClusterError::Api { what: what(), source: Box::new(source) })
    }
}
