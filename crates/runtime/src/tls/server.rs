//! The HTTPS server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::ServingCertificate;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Limits on what clients can hold.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at the same time; more wait in the kernel's queue.
    pub connections: usize,
    /// Timeout of a TLS handshake.
    pub handshake: Duration,
    /// Timeout for the head of a request, counted from the end of the previous one. So it is also the idle timeout.
    pub header: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub streams: u32,
    /// Timeout for requests in flight when the server stops.
    pub drain: Duration,
}

impl Default for ServerLimits {
    /// The idle timeout is longer than that of the API server, which is 90 s. If the server closed an idle connection,
    /// a review could be on its way at that moment, and would fail.
    fn default() -> Self {
        Self {
            connections: 4096,
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(120),
            streams: 250,
            drain: Duration::from_secs(10),
        }
    }
}

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

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct TlsPeer {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate, checked against the authorities of [`ServingCertificate::with_client_ca`]; `None` if it has
    /// sent none.
    pub certificate: Option<CertificateDer<'static>>,
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
    /// Listens on `address`; port 0 takes a free one.
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
        let listener = TcpListener::bind(address).await.map_err(failed)?;
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
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        self.serve_each(move |_| service, stop).await
    }

    /// As [`serve`](Self::serve), with a new service for each connection, made after the TLS handshake.
    pub async fn serve_each<M, S, B>(self, make: M, stop: CancellationToken) -> ServeReport
    where
        M: FnOnce(TlsPeer) -> S + Clone + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let graceful = GracefulShutdown::new();
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        // Connections that are left after the drain are closed when this is dropped.
        let mut connections = tokio::task::JoinSet::new();
        while let Some((socket, address)) = self.accept(&stop).await {
            while connections.try_join_next().is_some() {}
            let permit = tokio::select! {
                () = stop.cancelled() => break,
                permit = Arc::clone(&permits).acquire_owned() => permit,
            };
            let connection = ServerConnection {
                make: make.clone(),
                address,
                watcher: graceful.watcher(),
                limits: self.limits,
                acceptor: TlsAcceptor::from(self.certificate.current()),
                retire: self.retire.clone(),
                stop: stop.clone(),
            };
            connections.spawn(async move {
                connection.run(socket).await;
                drop(permit);
            });
        }
        drop(self.listener);
        let drained = tokio::time::timeout(self.limits.drain, graceful.shutdown()).await.is_ok();
        if !drained {
            tracing::warn!(after = ?self.limits.drain, "requests in flight were aborted");
        }
        ServeReport { drained }
    }

    async fn accept(&self, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(error) => {
                    // The client has disconnected, or no file descriptor is free. The latter needs time.
                    tracing::warn!("could not accept a connection: {error}");
                    tokio::select! {
                        () = stop.cancelled() => return None,
                        () = tokio::time::sleep(Duration::from_millis(50)) => {}
                    }
                }
            }
        }
    }
}

struct ServerConnection<M> {
    make: M,
    address: SocketAddr,
    watcher: Watcher,
    limits: ServerLimits,
    acceptor: TlsAcceptor,
    retire: CancellationToken,
    stop: CancellationToken,
}

impl<M> ServerConnection<M> {
    async fn run<S, B>(self, socket: TcpStream)
    where
        M: FnOnce(TlsPeer) -> S,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!("could not set TCP_NODELAY: {error}");
        }
        let handshake = tokio::time::timeout(self.limits.handshake, self.acceptor.accept(socket));
        let handshake = tokio::select! {
            handshake = handshake => handshake,
            // There is no request yet, so the drain need not wait for it.
            () = self.stop.cancelled() => return,
        };
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => return tracing::debug!("a TLS handshake took longer than {:?}", self.limits.handshake),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let peer = TlsPeer {
            address: self.address,
            certificate: certificate.map(|certificate| certificate.clone().into_owned()),
        };
        let service = (self.make)(peer);
        let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        let stream = TokioIo::new(stream);
        // The protocol is that of ALPN, so the first bytes need not be inspected.
        let result = if speaks_h2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(self.limits.streams)
                .keep_alive_interval(self.limits.header / 4)
                .keep_alive_timeout(self.limits.handshake)
                .serve_connection(stream, service);
            self.watcher.watch(connection).await
        } else {
            let retire = self.retire;
            let service = service_fn(move |request| {
                let (answer, retire) = (service.call(request), retire.clone());
                async move {
                    let mut response = answer.await?;
                    if retire.is_cancelled() {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.limits.header)
                .pipeline_flush(true)
                .serve_connection(stream, service);
            self.watcher.watch(connection).await
        };
        if let Err(error) = result {
            tracing::debug!("a connection ended: {error}");
        }
    }
}
