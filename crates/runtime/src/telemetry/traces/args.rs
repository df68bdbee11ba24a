//! Command line of tracing.

use std::env;
use std::path::PathBuf;

use clap::Args;

/// Arguments of tracing.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceArgs {
    /// Collector that receives traces by OTLP over gRPC, as in `http://otel-collector.observability:4317`; when not
    /// given: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; without all three there are no traces
    #[arg(long, env = "PODWARD_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// PEM file with the authorities that the certificate of an https collector is checked against, read again when it
    /// changes; the system's authorities when not given
    #[arg(long, env = "PODWARD_OTLP_CA", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,
}

impl TraceArgs {
    /// Returns the collector's URL, from the argument or from the standard variables; `None` if there is none or it is
    /// empty.
    pub(super) fn endpoint(&self) -> Option<String> {
        let variables = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let given = self.otlp_endpoint.clone().into_iter();
        let found = given.chain(variables.into_iter().filter_map(|variable| env::var(variable).ok()));
        found.map(|url| url.trim_end_matches('/').to_owned()).find(|url| !url.is_empty())
    }
}
