//! The accept loop.

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

use super::Certificates;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Bounds on what clients can hold.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at a time; more wait in the kernel's queue.
    pub connections: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request, counted from the end of the one before, so it is also how long a connection may idle.
    pub header: Duration,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
    /// Time for requests in flight to finish once the server stops.
    pub drain: Duration,
}

impl Default for ServerLimits {
    /// The API server drops a connection after 90 s of idling. It must be the one to do so: were it us, a review could be on its
    /// way at that moment, and would fail.
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

/// The address could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}; is the port taken, or below 1024 without the right to it?")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub source: std::io::Error,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it connects from.
    pub address: SocketAddr,
    /// Its certificate, checked against the authorities of [`Certificates::with_client_ca`]; `None` when it showed none.
    pub certificate: Option<CertificateDer<'static>>,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeReport {
    /// Whether all requests in flight were answered in time.
    pub drained: bool,
}

/// A listening HTTPS server.
#[derive(Debug)]
pub struct TlsServer {
    listener: TcpListener,
    address: SocketAddr,
    certificates: Arc<Certificates>,
    limits: ServerLimits,
    leaving: CancellationToken,
}

impl TlsServer {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// When the address can't be had.
    pub async fn bind(
        address: SocketAddr,
        certificates: Arc<Certificates>,
        limits: ServerLimits,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address: bound, certificates, limits, leaving: CancellationToken::new() })
    }

    /// From `leaving` on HTTP/1.1 clients are told with each answer to connect anew, while connections go on being accepted.
    ///
    /// A server that closes an idle connection may do so in the moment in which a request is on its way there, and a POST is not sent
    /// again (the API server asks webhooks by HTTP/1.1, so as to spread its requests over their replicas). A connection that ends with an answer
    /// can lose none. For HTTP/2 the end of [`serve`](Self::serve) has a word (GOAWAY) that does the same.
    #[must_use]
    pub fn retire_connections_from(self, leaving: CancellationToken) -> Self {
        Self { leaving, ..self }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; then accepts nothing more, tells HTTP/2 clients to go away, and waits for requests in flight, but no
    /// longer than [`ServerLimits::drain`].
    pub async fn serve<S, B>(self, service: S, stop: CancellationToken) -> ServeReport
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        self.serve_each(move |_| service, stop).await
    }

    /// As [`serve`](Self::serve), with a service of its own for each connection, made when it is known who is at its other end.
    pub async fn serve_each<M, S, B>(self, make: M, stop: CancellationToken) -> ServeReport
    where
        M: FnOnce(Peer) -> S + Clone + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let graceful = GracefulShutdown::new();
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        // Connections that outlive the drain are cut with it.
        let mut connections = tokio::task::JoinSet::new();
        while let Some((socket, address)) = self.accept(&stop).await {
            while connections.try_join_next().is_some() {}
            let permit = tokio::select! {
                () = stop.cancelled() => break,
                permit = Arc::clone(&permits).acquire_owned() => permit,
            };
            let connection = Connection {
                make: make.clone(),
                address,
                watcher: graceful.watcher(),
                limits: self.limits,
                acceptor: TlsAcceptor::from(self.certificates.current()),
                leaving: self.leaving.clone(),
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
            tracing::warn!(after = ?self.limits.drain, "requests in flight were cut off");
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
                    // A client that is gone already, or no file descriptors left: the latter passes only with time.
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

struct Connection<M> {
    make: M,
    address: SocketAddr,
    watcher: Watcher,
    limits: ServerLimits,
    acceptor: TlsAcceptor,
    leaving: CancellationToken,
    stop: CancellationToken,
}

impl<M> Connection<M> {
    async fn run<S, B>(self, socket: TcpStream)
    where
        M: FnOnce(Peer) -> S,
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
            // Nothing was asked yet, so nothing is lost, and the drain need not wait for it.
            () = self.stop.cancelled() => return,
        };
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => return tracing::debug!("a TLS handshake took longer than {:?}", self.limits.handshake),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let peer = Peer {
            address: self.address,
            certificate: certificate.map(|certificate| certificate.clone().into_owned()),
        };
        let service = (self.make)(peer);
        let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        let stream = TokioIo::new(stream);
        // ALPN has said which protocol it is, so there is no need to sniff at the first bytes.
        let result = if speaks_h2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(self.limits.streams)
                .keep_alive_interval(self.limits.header / 4)
                .keep_alive_timeout(self.limits.handshake)
                .serve_connection(stream, service);
            self.watcher.watch(connection).await
        } else {
            let leaving = self.leaving;
            let service = service_fn(move |request| {
                let (answer, leaving) = (service.call(request), leaving.clone());
                async move {
                    let mut response = answer.await?;
                    if leaving.is_cancelled() {
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
