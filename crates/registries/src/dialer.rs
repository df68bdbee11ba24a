//! Opens connections.

use std::error::Error;
use std::{fmt, io};

use async_trait::async_trait;
use tokio::net::{TcpStream, lookup_host};

/// Opens connections to registries. The caller decides which addresses are allowed.
#[async_trait]
pub trait Dialer: fmt::Debug + Send + Sync {
    /// Opens a connection to a host, which is a name or an IP address (IPv6 without brackets).
    ///
    /// # Errors
    /// Fails if the host is unknown or not allowed, or does not answer. The user who wrote the address learns the kind of the
    /// error, or of its cause, and the problem of a [`DialFailure`] in it. Its text is for the log only.
    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream>;
}

/// Why a connection was not tried. [`io::Error::other`] makes an error of I/O of it.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct DialFailure {
    /// What the user who wrote the address may learn.
    pub problem: DialProblem,
    /// What the log says.
    pub source: Box<dyn Error + Send + Sync>,
}

/// What the user who wrote an address may learn about a connection that was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialProblem {
    /// No address of the host is allowed.
    NotAllowed,
    /// The name of the host could not be resolved.
    NotResolved,
    /// It is not known yet which addresses are allowed.
    NotReady,
}

/// Opens any connection.
#[derive(Clone, Copy, Debug)]
pub struct DirectDialer;

#[async_trait]
impl Dialer for DirectDialer {
    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let not_resolved = |error: io::Error| {
            io::Error::other(DialFailure { problem: DialProblem::NotResolved, source: error.into() })
        };
        let addresses: Vec<_> = lookup_host((host, port)).await.map_err(not_resolved)?.collect();
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
