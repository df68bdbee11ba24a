//! Logs, metrics and traces of a process.

pub mod traces;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::args::{LogArgs, LogFormat};

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not understood.
    #[error(
        "the log filter {filter:?} is not understood: {source}; write for example info,podward_runtime=debug"
    )]
    Filter {
        /// The filter.
        filter: String,
        /// Why.
        source: ParseError,
    },
    /// There is a subscriber already.
    #[error("logging was set up twice in one process: {0}")]
    Twice(#[from] TryInitError),
}

/// Sends the process's logs to stderr, one line an event.
///
/// # Errors
///
/// When the filter is not understood, or logging has been set up before.
pub fn init(args: &LogArgs) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|source| TelemetryError::Filter { filter: args.log.clone(), source })?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        // The span's fields go to the top level of `span`; the list of parents would only say them again.
        LogFormat::Json => subscriber.json().flatten_event(true).with_span_list(false).finish().try_init()?,
        LogFormat::Text => subscriber.with_ansi(false).finish().try_init()?,
    }
    Ok(())
}

/// A registry whose metrics are named `podward_...`, with `podward_build_info` that says which service of which version it is.
#[must_use]
pub fn registry(service: &'static str, version: &'static str) -> Registry {
    let mut registry = Registry::with_prefix("podward");
    let build: Family<[(&'static str, &'static str); 2], Gauge> = Family::default();
    build.get_or_create(&[("service", service), ("version", version)]).set(1);
    registry.register("build_info", "Which service of which version this is", build);
    registry
}
