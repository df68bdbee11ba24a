//! Metrics of gRPC requests.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tonic::Code;

const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// The label of unknown methods, because clients must not be able to create labels.
const NO_METHOD: &str = "none";

/// The number of requests, the requests in flight, and the duration of requests. Clones share their values.
#[derive(Clone, Debug)]
pub struct GrpcMetrics {
    requests: Family<GrpcRequestLabels, Counter>,
    pub(super) in_flight: Gauge,
    seconds: Family<[(&'static str, String); 1], Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GrpcRequestLabels {
    method: String,
    code: String,
}

impl Default for GrpcMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            in_flight: Gauge::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl GrpcMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("grpc_requests", "gRPC requests that have ended", self.requests.clone());
        registry.register("grpc_requests_in_flight", "gRPC requests in flight", self.in_flight.clone());
        registry.register(
            "grpc_request_seconds",
            "Seconds from a gRPC request to the end of its answer; for streams, their whole life",
            self.seconds.clone(),
        );
    }

    pub(super) fn ended(&self, path: &str, code: Code, seconds: f64) {
        let method = match code {
            Code::Unimplemented => NO_METHOD,
            _ => path.trim_start_matches('/'),
        };
        self.requests
            .get_or_create(&GrpcRequestLabels { method: method.to_owned(), code: format!("{code:?}") })
            .inc();
        self.seconds.get_or_create(&[("method", method.to_owned())]).observe(seconds);
    }

    /// Counts a request that was rejected before its method was looked up.
    pub(super) fn refused(&self, code: Code) {
        self.requests
            .get_or_create(&GrpcRequestLabels { method: NO_METHOD.to_owned(), code: format!("{code:?}") })
            .inc();
    }
}
