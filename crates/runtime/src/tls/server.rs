//! The HTTPS server.

mod connection;
mod counted;
mod executor;
mod limits;
mod peer;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::ServingCertificate;
use crate::connections::{ConnectionLimits, Connections, FairTurns, IdleLimits};
use crate::listen::listen;
use connection::ServerConnection;
pub use limits::ServerLimits;
use peer::BoxError;
pub use peer::TlsPeer;

/// The server can't listen on an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not listen on {address}: {source}; check whether the port is in use, or below 1024 without the right to it"
)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The reason.
    pub source: std::io::Error,
}

/// The end of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeReport {
    /// True if all requests in flight were answered in time.
    pub drained: bool,
}

/// A listening HTTPS server.
#[derive(Debug)]
pub struct TlsServer {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Arc<ServingCertificate>,
    limits: ServerLimits,
    retire: CancellationToken,
}

impl TlsServer {
    /// Listens on `address`; port 0 takes a free one, and `[::]` stands for all addresses, IPv6 and IPv4.
    ///
    /// # Errors
    ///
    /// When it can't listen on the address.
    pub async fn bind(
        address: SocketAddr,
        certificate: Arc<ServingCertificate>,
        limits: ServerLimits,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = listen(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address: bound, certificate, limits, retire: CancellationToken::new() })
    }

    /// From `retire` on, each HTTP/1.1 response closes its connection. New connections are still accepted.
    ///
    /// A server that closes an idle connection can lose a request that is on its way, and clients do not repeat a POST.
    /// (The API server calls webhooks by HTTP/1.1, to spread its requests over their replicas.) A connection that ends
    /// with a response loses none. For HTTP/2, [`serve`](Self::serve) sends GOAWAY at its end, which has the same
    /// effect.
    #[must_use]
    pub fn retire_connections_from(self, retire: CancellationToken) -> Self {
        Self { retire, ..self }
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`. Then it closes the listener, sends GOAWAY to HTTP/2 clients, and waits for requests in
    /// flight, at most [`ServerLimits::drain`].
    pub async fn serve<S, B>(self, service: S, stop: CancellationToken) -> ServeReport
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        self.serve_each(move |_| service, stop).await
    }

    /// As [`serve`](Self::serve), with a new service for each connection, made after the TLS handshake.
    pub async fn serve_each<M, S, B>(self, make: M, stop: CancellationToken) -> ServeReport
    where
        M: FnOnce(TlsPeer) -> S + Clone + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let (open, turns) = (self.connections(), FairTurns::new(handshakes_at_a_time()));
        // Connections that are left after the drain are closed when this is dropped.
        let mut connections = tokio::task::JoinSet::new();
        while let Some((socket, address)) = self.accept(&open, &stop).await {
            while connections.try_join_next().is_some() {}
            // Without a place the socket is closed at once.
            let Some(place) = open.admit(address.ip()) else { continue };
            let connection = ServerConnection {
                make: make.clone(),
                address,
                open: place,
                turns: turns.clone(),
                metrics: open.metrics().clone(),
                limits: self.limits,
                certificate: Arc::clone(&self.certificate),
                retire: self.retire.clone(),
                stop: stop.clone(),
            };
            connections.spawn(connection.run(socket));
        }
        drop(self.listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        let drained = tokio::time::timeout(self.limits.drain, ended).await.is_ok();
        if !drained {
            tracing::warn!(after = ?self.limits.drain, "requests in flight were aborted");
        }
        ServeReport { drained }
    }

    fn connections(&self) -> Connections {
        let idle = IdleLimits {
            proven: self.limits.idle,
            unproven: self.limits.unproven_idle,
            unproven_requests: self.limits.unproven_requests,
            unread: self.limits.unread,
        };
        let limits = ConnectionLimits::of(self.limits.connections);
        Connections::new(limits, idle, self.certificate.connection_metrics())
    }

    async fn accept(&self, open: &Connections, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, from)) => {
                    let address = SocketAddr::new(from.ip().to_canonical(), from.port());
                    return Some((socket, address));
                }
                Err(error) => {
                    // The client has disconnected, or no file descriptor is free. The latter needs a connection less,
                    // and time.
                    tracing::warn!("could not accept a connection: {error}");
                    if is_out_of_files(&error) {
                        open.make_room();
                    }
                    tokio::select! {
                        () = stop.cancelled() => return None,
                        () = tokio::time::sleep(Duration::from_millis(50)) => {}
                    }
                }
            }
        }
    }
}

/// Returns the number of handshakes whose expensive step runs at the same time: half of the threads, so that the others
/// answer requests.
fn handshakes_at_a_time() -> usize {
    Handle::current().metrics().num_workers() / 2
}

/// True if the process (EMFILE) or the system (ENFILE) has no free file descriptor.
fn is_out_of_files(error: &std::io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
