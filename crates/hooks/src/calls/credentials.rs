//! The credentials that hook servers receive: a bearer token and a client certificate. Both are read again when their
//! files change, as the kubelet and cert-manager rotate them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use podward_runtime::grpc_client::BearerToken;
use tonic::metadata::{Ascii, MetadataValue};

use crate::questions::failure::CallFailure;

/// The minimum time between two reads of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Flags for the credentials that hook servers receive
#[derive(Args, Clone, Debug, Default)]
pub struct HookArgs {
    /// File with the bearer token that is sent to hook servers; read again when it changes. By default no token is sent
    #[arg(long, env = "PODWARD_HOOK_TOKEN_FILE", value_name = "FILE")]
    pub hook_token_file: Option<PathBuf>,
    /// File with the PEM client certificate for hook servers that require one; read again when it changes
    #[arg(long, env = "PODWARD_HOOK_CLIENT_CERT", value_name = "FILE", requires = "hook_client_key")]
    pub hook_client_cert: Option<PathBuf>,
    /// File with the PEM key of the client certificate; read again when it changes
    #[arg(long, env = "PODWARD_HOOK_CLIENT_KEY", value_name = "FILE", requires = "hook_client_cert")]
    pub hook_client_key: Option<PathBuf>,
}

/// The files and their last content.
#[derive(Debug)]
pub(crate) struct HookCredentials {
    args: HookArgs,
    token: Option<BearerToken>,
    read: Mutex<LoadedIdentity>,
}

#[derive(Debug, Default)]
struct LoadedIdentity {
    looked: Option<Instant>,
    pair: Option<Arc<ClientPair>>,
    /// Increases with each new pair.
    version: u64,
}

/// A client certificate and its key, as PEM.
#[derive(PartialEq, Eq)]
pub(crate) struct ClientPair {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl std::fmt::Debug for ClientPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientPair").finish_non_exhaustive()
    }
}

/// The present client certificate.
#[derive(Debug)]
pub(crate) struct ClientIdentity {
    /// Changes when the certificate or the key changes.
    pub(crate) version: u64,
    pub(crate) identity: Option<Arc<ClientPair>>,
}

impl HookCredentials {
    pub(crate) fn new(args: HookArgs) -> Self {
        let token = args.hook_token_file.as_ref().map(BearerToken::from_file);
        HookCredentials { args, token, read: Mutex::default() }
    }

    /// Returns the value of the header `authorization`; `None` if no token is configured.
    ///
    /// # Errors
    ///
    /// When the token can't be read, and never could.
    pub(crate) fn bearer(&self) -> Result<Option<MetadataValue<Ascii>>, CallFailure> {
        let header = self.token.as_ref().map(BearerToken::header).transpose();
        header.map_err(|status| missing("--hook-token-file", status.message()))
    }

    /// Returns the client certificate; it is empty if none is configured.
    ///
    /// # Errors
    ///
    /// When the files can't be read, and never could.
    pub(crate) fn identity(&self) -> Result<ClientIdentity, CallFailure> {
        let read = self.look();
        match (&self.args.hook_client_cert, &read.pair) {
            (Some(path), None) => {
                Err(missing("--hook-client-cert or its key", &format!("could not use {path:?}")))
            }
            (_, pair) => Ok(ClientIdentity { version: read.version, identity: pair.clone() }),
        }
    }

    fn look(&self) -> parking_lot::MutexGuard<'_, LoadedIdentity> {
        let mut read = self.read.lock();
        let now = Instant::now();
        if read.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_INTERVAL) {
            return read;
        }
        read.looked = Some(now);
        // If the files can't be read now, the last pair stays in use.
        let files = self.args.hook_client_cert.as_deref().zip(self.args.hook_client_key.as_deref());
        if let Some(pair) =
            files.and_then(|(cert, key)| Some(ClientPair { certificate: bytes(cert)?, key: bytes(key)? }))
            && read.pair.as_deref() != Some(&pair)
        {
            read.pair = Some(Arc::new(pair));
            read.version += 1;
        }
        read
    }
}

fn bytes(path: &Path) -> Option<Vec<u8>> {
    fs::read(path)
        .inspect_err(|error| tracing::warn!(%error, ?path, "could not read a credential for hook servers"))
        .ok()
        .filter(|bytes| !bytes.is_empty())
}

fn missing(flag: &str, problem: &str) -> CallFailure {
    CallFailure::connection(format!(
        "the lifecycle-controller has no credentials for hooks ({flag}): {problem}; check that its \
         Secret or token is mounted there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_can_not_be_read_is_said_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let args = HookArgs { hook_token_file: Some(path.clone()), ..HookArgs::default() };
        let credentials = HookCredentials::new(args);
        assert!(credentials.bearer().is_err_and(|failure| failure.text.contains("--hook-token-file")));
        fs::write(&path, "secret-1\n").unwrap();
        assert_eq!(credentials.bearer().unwrap().unwrap(), "Bearer secret-1");
        assert!(!format!("{credentials:?}").contains("secret-1"), "no secrets in logs");
    }

    #[test]
    fn without_files_nothing_is_shown() {
        let credentials = HookCredentials::new(HookArgs::default());
        assert!(
            credentials.bearer().unwrap().is_none() && credentials.identity().unwrap().identity.is_none()
        );
    }
}
