//! Logs, metrics and traces of a process.

pub mod traces;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::args::{LogArgs, LogFormat};

/// Logging can't be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// The filter is invalid.
    #[error("the log filter {filter:?} is invalid: {source}; write for example info,podward_runtime=debug")]
    Filter {
        /// The filter.
        filter: String,
        /// The reason.
        source: ParseError,
    },
    /// Logging was set up before.
    #[error("logging was set up twice in one process: {0}")]
    Twice(#[from] TryInitError),
}

/// Writes the process's logs to stderr, one line per event.
///
/// # Errors
///
/// When the filter is invalid, or logging was set up before.
pub(crate) fn init(args: &LogArgs) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|source| TelemetryError::Filter { filter: args.log.clone(), source })?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        // The list of spans would only repeat the fields of `span`.
        LogFormat::Json => subscriber.json().flatten_event(true).with_span_list(false).finish().try_init()?,
        LogFormat::Text => subscriber.with_ansi(false).finish().try_init()?,
    }
    Ok(())
}

/// Returns a registry whose metrics are named `podward_...`. It has `podward_build_info` with the service and its
/// version.
#[must_use]
pub fn registry(service: &'static str, version: &'static str) -> Registry {
    let mut registry = Registry::with_prefix("podward");
    let build: Family<[(&'static str, &'static str); 2], Gauge> = Family::default();
    build.get_or_create(&[("service", service), ("version", version)]).set(1);
    registry.register("build_info", "The service and its version; always 1", build);
    registry
}
