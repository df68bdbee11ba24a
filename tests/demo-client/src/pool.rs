//! Connections that are kept alive.

use std::{collections::VecDeque, io, net::SocketAddr};

use tokio::net::TcpStream;

/// The idle connections, the longest idle one first. So all connections are used, and the load is spread over as many
/// servers as with many clients.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    idle: VecDeque<TcpStream>,
    size: usize,
}

impl ConnectionPool {
    pub(crate) fn new(size: usize) -> Self {
        Self { idle: VecDeque::with_capacity(size), size }
    }

    /// Returns an idle connection that is not known to be closed.
    pub(crate) fn take(&mut self) -> Option<TcpStream> {
        while let Some(stream) = self.idle.pop_front() {
            // There is nothing to read, not even an end of file, which a closing server sends.
            let nothing = stream.try_read(&mut [0; 1]);
            if nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps a connection for the next request. Closes it if there are enough.
    pub(crate) fn give(&mut self, stream: TcpStream) {
        if self.idle.len() < self.size {
            self.idle.push_back(stream);
        }
    }

    /// Returns whether the pool may open another connection.
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
