//! The plain HTTP port for probes and metrics: `/livez`, `/readyz`, `/metrics`.

mod readiness;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub use readiness::{Readiness, ReadinessCondition};

use crate::connections::{ConnectionLimits, ConnectionMetrics, Connections, IdleLimits, OpenConnection};
use crate::listen::listen;
use crate::tls::BindError;

/// Connections at the same time. Probes and Prometheus need a few; a new one replaces the oldest.
const MAX_CONNECTIONS: usize = 256;
/// The timeout of a head, which is also the idle timeout. All clients are equal here.
const IDLE: IdleLimits = IdleLimits {
    proven: Duration::from_secs(10),
    unproven: Duration::from_secs(10),
    unproven_requests: u32::MAX,
    unread: Duration::from_secs(10),
};
/// The maximum size of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// The pause after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The time that answers get to finish when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The content type of OpenMetrics text, which Prometheus reads.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A listening admin server.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Listens on `address`; port 0 takes a free one, and `[::]` stands for all addresses, IPv6 and IPv4.
    ///
    /// # Errors
    ///
    /// When it can't listen on the address.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = listen(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address: bound })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`. Cancel `stop` last, because a probe fails when nothing listens on its port.
    ///
    /// # Errors
    ///
    /// When the listener fails.
    pub async fn serve(
        self,
        readiness: Readiness,
        registry: Registry,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let service = TowerToHyperService::new(router(readiness, registry));
        let open =
            Connections::new(ConnectionLimits::of(MAX_CONNECTIONS), IDLE, ConnectionMetrics::default());
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((socket, address)) => {
                    let Some(place) = open.admit(address.ip()) else { continue };
                    connections.spawn(serve_connection(socket, place, service.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!("could not accept a connection to the administration port: {error}");
                    open.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        // What is left then is closed.
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::debug!("connections to the administration port were closed");
        }
        Ok(())
    }
}

/// Serves a connection until its end, until a new one takes its place, or until `stop`.
async fn serve_connection(
    socket: TcpStream,
    place: OpenConnection,
    service: TowerToHyperService<Router>,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE.unproven)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let mut is_stopped = false;
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!("a connection to the administration port ended: {error}");
                }
                return;
            }
            () = place.replaced() => return,
            () = stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The metrics of a process, and the gauge of its readiness.
struct ServedMetrics {
    registry: Registry,
    readiness: Readiness,
    ready: Gauge,
}

/// Returns the routes of the admin port. Adds the gauge `ready` to `registry`.
pub fn router(readiness: Readiness, mut registry: Registry) -> Router {
    let ready = Gauge::default();
    registry.register("ready", "1 while the process is ready, as /readyz reports it", ready.clone());
    let served = ServedMetrics { registry, readiness: readiness.clone(), ready };
    Router::new()
        // Alive as long as the runtime polls and work in progress ends. Other faults make the process unready: a restart
        // would not fix them.
        .route("/livez", get(livez).with_state(readiness.clone()))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(metrics).with_state(Arc::new(served)))
}

async fn livez(State(readiness): State<Readiness>) -> Response {
    match readiness.stalled_for() {
        None => "ok\n".into_response(),
        Some(since) => {
            let text = format!("stalled: no work has ended for {} s\n", since.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let missing = readiness.missing();
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join(", "))).into_response()
}

async fn metrics(State(served): State<Arc<ServedMetrics>>) -> Response {
    served.ready.set(i64::from(served.readiness.missing().is_empty()));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &served.registry) {
        Ok(()) => ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("could not encode the metrics: {error}\n"))
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt;

    use super::*;
    use crate::progress::Progress;

    async fn get_text(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_when_all_conditions_are() {
        let readiness = Readiness::default();
        let (tls, cache) = (readiness.condition("tls"), readiness.condition("cache"));
        let router = router(readiness, Registry::default());
        let unready = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(get_text(&router, "/readyz").await, (unready, "not ready: tls, cache\n".to_owned()));
        tls.set(true);
        assert_eq!(get_text(&router, "/readyz").await, (unready, "not ready: cache\n".to_owned()));
        cache.set(true);
        assert_eq!(get_text(&router, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
        tls.set(false);
        assert_eq!(get_text(&router, "/readyz").await.0, unready);
        assert_eq!(get_text(&router, "/livez").await, (StatusCode::OK, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn not_alive_while_work_does_not_end() {
        let (readiness, progress) = (Readiness::default(), Progress::new(Duration::ZERO));
        readiness.depend_on(Progress::default());
        readiness.depend_on(progress.clone());
        let router = router(readiness, Registry::default());
        assert_eq!(get_text(&router, "/livez").await.0, StatusCode::OK);
        let work = progress.begin();
        let stalled = "stalled: no work has ended for 0 s\n".to_owned();
        assert_eq!(get_text(&router, "/livez").await, (StatusCode::SERVICE_UNAVAILABLE, stalled));
        drop(work);
        assert_eq!(get_text(&router, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn idle_connections_do_not_stop_a_probe() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let served = tokio::spawn(server.serve(Readiness::default(), Registry::default(), stop.clone()));
        let mut idle = Vec::new();
        for _ in 0..MAX_CONNECTIONS * 2 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        stop.cancel();
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn metrics_are_openmetrics() {
        let (mut registry, counter) = (Registry::with_prefix("podward"), Counter::<u64>::default());
        registry.register("things", "Things", counter.clone());
        counter.inc();
        let (status, text) = get_text(&router(Readiness::default(), registry), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("podward_things_total 1") && text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test]
    async fn the_metrics_contain_the_readiness() {
        let readiness = Readiness::default();
        let tls = readiness.condition("tls");
        let router = router(readiness, Registry::with_prefix("podward"));
        for (holds, line) in
            [(false, "podward_ready 0"), (true, "podward_ready 1"), (false, "podward_ready 0")]
        {
            tls.set(holds);
            let (_, text) = get_text(&router, "/metrics").await;
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
