//! Errors of setting up traces.

use opentelemetry_otlp::ExporterBuildError;

use crate::grpc_client::InvalidEndpoint;

/// Traces can't be sent as configured.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The collector's URL is invalid.
    #[error("traces can't be sent to {url:?}: {problem}; write for example http://otel-collector:4317")]
    Endpoint {
        /// The URL.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The collector's https URL is invalid.
    #[error("traces can't be sent: {0}")]
    Tls(#[from] InvalidEndpoint),
    /// One of the standard variables is invalid.
    #[error("traces can't be sent; check the variables OTEL_EXPORTER_OTLP_...: {0}")]
    Exporter(#[from] ExporterBuildError),
}
