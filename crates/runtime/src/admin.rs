//! The plain HTTP port for probes and metrics: `/livez`, `/readyz`, `/metrics`.

mod readiness;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use readiness::{Readiness, ReadinessCondition};

use crate::tls::BindError;

/// The content type of OpenMetrics text, which Prometheus reads.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A listening admin server.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// When it can't listen on the address.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
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
        axum::serve(self.listener, router(readiness, registry))
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
    }
}

/// Returns the routes of the admin port.
pub fn router(readiness: Readiness, registry: Registry) -> Router {
    Router::new()
        // Alive as long as the runtime polls. Other faults make the process unready: a restart would not fix them.
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(metrics).with_state(Arc::new(registry)))
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let missing = readiness.missing();
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join(", "))).into_response()
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
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
    async fn metrics_are_openmetrics() {
        let (mut registry, counter) = (Registry::with_prefix("podward"), Counter::<u64>::default());
        registry.register("things", "Things", counter.clone());
        counter.inc();
        let (status, text) = get_text(&router(Readiness::default(), registry), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("podward_things_total 1") && text.ends_with("# EOF\n"), "{text}");
    }
}
