//! One connection of the HTTPS server, from its handshake to its end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::counted::CountedService;
use super::executor::RequestExecutor;
use super::limits::ServerLimits;
use super::peer::{BoxError, TlsPeer};
use crate::connections::{
    ClosedBy, ConnectionMetrics, FairTurns, HandshakeOutcome, IdleCheck, OpenConnection, Peer, SentAnswer,
};
use crate::tls::ServingCertificate;

/// The window of an HTTP/2 stream, which is the content that a client can send before anything reads it. It is the initial
/// size of RFC 9113.
const H2_STREAM_WINDOW: u32 = 65_535;
/// The window of an HTTP/2 connection. With a smaller one h2 takes small messages on all streams for an attack.
const H2_CONNECTION_WINDOW: u32 = 1 << 20;
/// The maximum size of a request's head, and of the buffers of an HTTP/1.1 connection.
const H1_BUFFER: usize = 64 << 10;
/// The time from GOAWAY until the connection is closed, if no request of a proven client is in flight.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// What a connection needs from its server.
pub(super) struct ServerConnection<M> {
    pub(super) make: M,
    pub(super) address: SocketAddr,
    pub(super) open: OpenConnection,
    pub(super) turns: FairTurns,
    pub(super) metrics: ConnectionMetrics,
    pub(super) limits: ServerLimits,
    pub(super) certificate: Arc<ServingCertificate>,
    pub(super) retire: CancellationToken,
    pub(super) stop: CancellationToken,
}

impl<M> ServerConnection<M> {
    pub(super) async fn run<S, B>(self, socket: TcpStream)
    where
        M: FnOnce(TlsPeer) -> S,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!("could not set TCP_NODELAY: {error}");
        }
        let handshake = tokio::select! {
            handshake = timeout(
                self.limits.handshake,
                handshake(socket, &self.certificate, &self.turns, self.open.peer()),
            ) => handshake,
            // There is no request yet, so the drain need not wait for it, and another connection may take its place.
            () = self.stop.cancelled() => return,
            () = self.open.replaced() => return,
        };
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.metrics.handshake(HandshakeOutcome::Failure);
                return tracing::debug!("a TLS handshake failed: {error}");
            }
            Err(_) => {
                self.metrics.handshake(HandshakeOutcome::Timeout);
                return tracing::debug!("a TLS handshake took longer than {:?}", self.limits.handshake);
            }
        };
        self.metrics.handshake(HandshakeOutcome::Success);
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(|certificate| certificate.clone().into_owned());
        let proof = self.open.proof();
        if certificate.is_some() {
            proof.prove();
        }
        let service = (self.make)(TlsPeer { address: self.address, certificate });
        let service = CountedService { service, proof: proof.clone() };
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        let stream = TokioIo::new(stream);
        // The protocol is that of ALPN, so the first bytes need not be inspected.
        let result = if is_h2 {
            let connection = http2::Builder::new(RequestExecutor { proof })
                .timer(TokioTimer::new())
                .max_concurrent_streams(self.limits.streams)
                .initial_stream_window_size(H2_STREAM_WINDOW)
                .initial_connection_window_size(H2_CONNECTION_WINDOW)
                .keep_alive_interval(self.limits.idle / 4)
                .keep_alive_timeout(self.limits.handshake)
                .serve_connection(stream, service);
            drive(connection, &self.open, &self.metrics, &self.stop).await
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
            // Not with `pipeline_flush`: then the buffer of answers grows without a limit while the client does not read.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.limits.idle)
                .max_buf_size(H1_BUFFER)
                .serve_connection(stream, service);
            let served = drive(connection, &self.open, &self.metrics, &self.stop);
            let Some(result) = SentAnswer::new(proof).within_limits(served).await else {
                self.metrics.closed(ClosedBy::Unread);
                return tracing::debug!("a connection was closed, because its client did not read an answer");
            };
            result
        };
        if let Err(error) = result {
            tracing::debug!("a connection ended: {error}");
        }
    }
}

/// Shakes hands. The step that costs CPU time, from the client's first message to the server's answer, needs a turn. A
/// turn is never held while the client is waited for.
async fn handshake(
    socket: TcpStream,
    certificate: &ServingCertificate,
    turns: &FairTurns,
    peer: Peer,
) -> std::io::Result<TlsStream<TcpStream>> {
    let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
    let mut answer = pin!(hello.into_stream(certificate.current()));
    let turn = turns.turn(peer).await;
    let first = futures::poll!(answer.as_mut());
    drop(turn);
    match first {
        Poll::Ready(stream) => stream,
        Poll::Pending => answer.await,
    }
}

/// Serves `connection` until its end, until another one takes its place, or until it has been idle for too long. From
/// `stop` on it ends as soon as its requests in flight are answered.
async fn drive<C: GracefulConnection>(
    connection: C,
    open: &OpenConnection,
    metrics: &ConnectionMetrics,
    stop: &CancellationToken,
) -> Result<(), C::Error> {
    let mut connection = pin!(connection);
    let (mut is_stopped, mut is_closing) = (false, false);
    let mut timer = pin!(sleep_until(Instant::now()));
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => return result,
            () = open.replaced() => return Ok(()),
            () = stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                connection.as_mut().graceful_shutdown();
                if open.is_idle_and_unproven() {
                    is_closing = true;
                    timer.as_mut().reset(Instant::now() + CLOSE_GRACE);
                }
            }
            reason = open.exhausted(), if !is_closing => {
                metrics.closed(reason);
                is_closing = true;
                connection.as_mut().graceful_shutdown();
                timer.as_mut().reset(Instant::now() + CLOSE_GRACE);
            }
            () = timer.as_mut() => match open.check_idle() {
                _ if is_closing && open.may_close() => return Ok(()),
                _ if is_closing => timer.as_mut().reset(Instant::now() + CLOSE_GRACE),
                IdleCheck::Again(due) => timer.as_mut().reset(due),
                IdleCheck::Expired => {
                    metrics.closed(ClosedBy::Idle);
                    is_closing = true;
                    // A request may be on its way. GOAWAY tells the client which ones were received.
                    connection.as_mut().graceful_shutdown();
                    timer.as_mut().reset(Instant::now() + CLOSE_GRACE);
                }
            },
        }
    }
}
