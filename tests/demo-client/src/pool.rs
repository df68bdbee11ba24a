//! Connections that are kept alive.

use std::{collections::VecDeque, io, net::SocketAddr};

use tokio::net::TcpStream;

/// Connections that no request uses, the one that was idle longest first: so all are used, and the load is spread over as many
/// servers as a real crowd of clients would reach.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: VecDeque<TcpStream>,
    size: usize,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Self {
        Self { idle: VecDeque::with_capacity(size), size }
    }

    /// A connection that was used before and isn't known to be closed.
    pub(crate) fn take(&mut self) -> Option<TcpStream> {
        while let Some(stream) = self.idle.pop_front() {
            // Nothing to read, and no end: what a server that has closed shows.
            let nothing = stream.try_read(&mut [0; 1]);
            if nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps a connection for the next request. One too many is closed.
    pub(crate) fn give(&mut self, stream: TcpStream) {
        if self.idle.len() < self.size {
            self.idle.push_back(stream);
        }
    }

    /// Whether there are fewer connections than there may be.
    pub(crate) fn has_room(&self) -> bool {
        self.idle.len() < self.size
    }
}

/// Opens a connection.
pub(crate) async fn open(target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
