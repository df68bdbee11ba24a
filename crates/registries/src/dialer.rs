//! Opens connections.

use std::{fmt, io};

use async_trait::async_trait;
use tokio::net::TcpStream;

/// Opens connections to registries. The caller decides which addresses are allowed.
#[async_trait]
pub trait Dialer: fmt::Debug + Send + Sync {
    /// Opens a connection to a host, which is a name or an IP address (IPv6 without brackets).
    ///
    /// # Errors
    /// Fails if the host is unknown or not allowed, or does not answer.
    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream>;
}

/// Opens any connection.
#[derive(Clone, Copy, Debug)]
pub struct DirectDialer;

#[async_trait]
impl Dialer for DirectDialer {
    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
