//! Connections that are kept alive.

use std::{collections::VecDeque, io, net::SocketAddr};

use tokio::net::TcpStream;

/// The idle connections, the longest idle one first. So all connections are used, and the load is spread over as many
/// servers as with many clients.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    idle: VecDeque<IdleConnection>,
    size: usize,
}

/// A connection, and the address that it leads to.
pub(crate) type IdleConnection = (SocketAddr, TcpStream);

impl ConnectionPool {
    pub(crate) fn new(size: usize) -> Self {
        Self { idle: VecDeque::with_capacity(size), size }
    }

    /// Returns an idle connection that is not known to be closed: one to `target`, or to any address without it.
    pub(crate) fn take(&mut self, target: Option<SocketAddr>) -> Option<IdleConnection> {
        let fits = |(address, _): &IdleConnection| target.is_none_or(|target| target == *address);
        while let Some((address, stream)) =
            self.idle.iter().position(fits).and_then(|index| self.idle.remove(index))
        {
            // There is nothing to read, not even an end of file, which a closing server sends.
            let nothing = stream.try_read(&mut [0; 1]);
            if nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Some((address, stream));
            }
        }
        None
    }

    /// Closes the idle connections to other addresses than those that `keeps` names.
    pub(crate) fn retain(&mut self, keeps: impl Fn(SocketAddr) -> bool) {
        self.idle.retain(|(address, _)| keeps(*address));
    }

    /// Keeps a connection for the next request. Closes it if there are enough.
    pub(crate) fn give(&mut self, connection: IdleConnection) {
        if self.idle.len() < self.size {
            self.idle.push_back(connection);
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
