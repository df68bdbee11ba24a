//! The bearer token of a client.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::tls::FileVersion;

/// The file is checked for changes at most once in this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Adds `authorization: Bearer <token>` to every request. The token's file is read again when it changes (the kubelet
/// renews a service account's token at 80 % of its lifetime). Clones share the token.
#[derive(Clone)]
pub struct BearerToken {
    path: PathBuf,
    state: Arc<Mutex<Option<ReadToken>>>,
}

struct ReadToken {
    version: Option<FileVersion>,
    looked: Instant,
    header: MetadataValue<Ascii>,
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BearerToken").field("path", &self.path).finish_non_exhaustive()
    }
}

impl BearerToken {
    /// The token in the file `path`, which need not exist yet.
    #[must_use]
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), state: Arc::default() }
    }

    /// Returns the value of the header.
    ///
    /// # Errors
    ///
    /// UNAUTHENTICATED when the file can't be read, or has no token.
    pub fn header(&self) -> Result<MetadataValue<Ascii>, Status> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if let Some(seen) = state.as_mut() {
            if now.saturating_duration_since(seen.looked) < LOOK_INTERVAL {
                return Ok(seen.header.clone());
            }
            seen.looked = now;
            let version = FileVersion::of(&self.path);
            if version == seen.version {
                return Ok(seen.header.clone());
            }
        }
        let version = FileVersion::of(&self.path);
        match (self.read(), state.as_ref()) {
            (Ok(header), _) => {
                *state = Some(ReadToken { version, looked: now, header: header.clone() });
                Ok(header)
            }
            (Err(error), Some(seen)) => {
                tracing::warn!("the new token is not used, the old one is still sent: {}", error.message());
                Ok(seen.header.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn read(&self) -> Result<MetadataValue<Ascii>, Status> {
        let path = &self.path;
        let text = fs::read_to_string(path).map_err(|error| {
            Status::unauthenticated(format!("could not read the token to send from {path:?}: {error}"))
        })?;
        let token = text.trim();
        if token.is_empty() {
            return Err(Status::unauthenticated(format!("the file {path:?} of the token to send is empty")));
        }
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            Status::unauthenticated(format!("the content of {path:?} can't be sent as a token"))
        })?;
        // Keeps the token out of the header table of HTTP/2 and of debug output.
        header.set_sensitive(true);
        Ok(header)
    }
}

impl Interceptor for BearerToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.header()?);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_token_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = BearerToken::from_file(&path);
        assert!(token.header().unwrap_err().message().contains("could not read the token"));
        fs::write(&path, "one\n").unwrap();
        assert_eq!(token.header().unwrap(), "Bearer one");
        fs::write(dir.path().join("next"), "two\n").unwrap();
        fs::rename(dir.path().join("next"), &path).unwrap();
        assert_eq!(token.header().unwrap(), "Bearer one", "it doesn't look at every call");
        let long_ago = Instant::now().checked_sub(LOOK_INTERVAL).unwrap();
        let look = || token.state.lock().as_mut().unwrap().looked = long_ago;
        look();
        assert_eq!(token.header().unwrap(), "Bearer two");
        fs::write(&path, "").unwrap();
        look();
        assert_eq!(token.header().unwrap(), "Bearer two", "a file that is half written counts for nothing");
        fs::remove_file(&path).unwrap();
        look();
        assert_eq!(token.header().unwrap(), "Bearer two", "the last good one");
        assert!(!format!("{token:?} {:?}", token.header().unwrap()).contains("two"));
    }
}
