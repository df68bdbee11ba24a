//! The channel to the collector.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use tonic::transport::{Channel, Endpoint};

use super::error::TraceError;
use crate::grpc_client::{Connect, Trust};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a channel to `url` that connects when it is first used. `ca` is a PEM file with authorities; `None` stands
/// for those of the system.
pub(super) fn lazy(url: &str, ca: Option<PathBuf>) -> Result<Channel, TraceError> {
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
            Ok(endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy())
        }
        _ => Err(invalid("its scheme is neither http nor https")),
    }
}
