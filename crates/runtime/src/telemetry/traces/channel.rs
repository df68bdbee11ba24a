//! The channel to the collector.

use std::path::PathBuf;

use hyper::Uri;
use tonic::transport::{Channel, Endpoint};

use super::error::TraceError;
use super::export::TraceLimits;
use crate::grpc_client::{CONNECT_TIMEOUT, Connect, Trust};

/// Returns a channel to `url` that connects when it is first used. `ca` is a PEM file with authorities; `None` stands
/// for those of the system.
pub(super) fn lazy(url: &str, ca: Option<PathBuf>, limits: TraceLimits) -> Result<Channel, TraceError> {
    let invalid = |problem: &str| TraceError::Endpoint { url: url.to_owned(), problem: problem.to_owned() };
    let uri: Uri = url.parse().map_err(|error| invalid(&format!("{error}")))?;
    match uri.scheme_str() {
        Some("https") => {
            let trust = ca.map_or_else(|| Trust::pem(""), Trust::file);
            Ok(Connect::new(url, trust)?.lazy()?)
        }
        Some("http") if ca.is_some() => Err(invalid("authorities (--otlp-ca) can be given only with https")),
        Some("http") => {
            let endpoint =
                Endpoint::from_shared(url.to_owned()).map_err(|error| invalid(&error.to_string()))?;
            let endpoint = endpoint
                .http2_keep_alive_interval(limits.keep_alive_interval)
                .keep_alive_timeout(limits.keep_alive_timeout)
                .connect_timeout(CONNECT_TIMEOUT);
            Ok(endpoint.connect_lazy())
        }
        _ => Err(invalid("its scheme is neither http nor https")),
    }
}
