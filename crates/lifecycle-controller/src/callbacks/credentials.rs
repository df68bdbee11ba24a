//! How Podward proves itself to hook servers: a bearer token, a client certificate. Both are read again when their files change, as
//! the kubelet and cert-manager rotate them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use podward_runtime::grpc_client::BearerToken;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Identity;

use super::response::Failure;

/// How long a look at the files is good for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Command line: what is shown to hook servers
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct HookArgs {
    /// File with the bearer token that is sent to hook servers; read again when it changes. By default none is sent
    #[arg(long, env = "PODWARD_HOOK_TOKEN_FILE", value_name = "FILE")]
    pub(crate) hook_token_file: Option<PathBuf>,
    /// PEM certificate that is shown to hook servers which ask for one; read again when it changes
    #[arg(long, env = "PODWARD_HOOK_CLIENT_CERT", value_name = "FILE", requires = "hook_client_key")]
    pub(crate) hook_client_cert: Option<PathBuf>,
    /// PEM key of that certificate
    #[arg(long, env = "PODWARD_HOOK_CLIENT_KEY", value_name = "FILE", requires = "hook_client_cert")]
    pub(crate) hook_client_key: Option<PathBuf>,
}

/// The files, and what was in them.
#[derive(Debug)]
pub(super) struct Credentials {
    args: HookArgs,
    token: Option<BearerToken>,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    looked: Option<Instant>,
    pair: Option<(Vec<u8>, Vec<u8>)>,
    /// Counts the pairs.
    version: u64,
}

/// A client certificate and its key.
#[derive(Debug)]
pub(super) struct ClientIdentity {
    /// Changes with them.
    pub(super) version: u64,
    pub(super) identity: Option<Identity>,
}

impl Credentials {
    pub(super) fn new(args: HookArgs) -> Self {
        let token = args.hook_token_file.as_ref().map(BearerToken::from_file);
        Credentials { args, token, read: Mutex::default() }
    }

    /// The value of the header `authorization`, if there is to be one.
    ///
    /// # Errors
    /// When the token can't be read, and never could: a call without it would not be what was asked for.
    pub(super) fn bearer(&self) -> Result<Option<MetadataValue<Ascii>>, Failure> {
        let header = self.token.as_ref().map(BearerToken::header).transpose();
        header.map_err(|status| missing("--hook-token-file", status.message()))
    }

    /// What to show to a server that asks.
    ///
    /// # Errors
    /// When it can't be read, and never could.
    pub(super) fn identity(&self) -> Result<ClientIdentity, Failure> {
        let read = self.look();
        match (&self.args.hook_client_cert, &read.pair) {
            (Some(path), None) => {
                Err(missing("--hook-client-cert or its key", &format!("could not use {path:?}")))
            }
            (_, pair) => {
                let identity = pair.as_ref().map(|(cert, key)| Identity::from_pem(cert, key));
                Ok(ClientIdentity { version: read.version, identity })
            }
        }
    }

    fn look(&self) -> parking_lot::MutexGuard<'_, Read> {
        let mut read = self.read.lock();
        let now = Instant::now();
        if read.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_INTERVAL) {
            return read;
        }
        read.looked = Some(now);
        // What can't be read now may have been read before, and be good still.
        let files = self.args.hook_client_cert.as_deref().zip(self.args.hook_client_key.as_deref());
        if let Some(pair) = files.and_then(|(cert, key)| bytes(cert).zip(bytes(key)))
            && read.pair.as_ref() != Some(&pair)
        {
            read.pair = Some(pair);
            read.version += 1;
        }
        read
    }
}

fn bytes(path: &Path) -> Option<Vec<u8>> {
    fs::read(path)
        .inspect_err(|error| tracing::warn!(%error, ?path, "could not read what is shown to hook servers"))
        .ok()
        .filter(|bytes| !bytes.is_empty())
}

fn missing(flag: &str, problem: &str) -> Failure {
    Failure::connection(format!(
        "the lifecycle-controller has no credentials for hooks ({flag}): {problem}; check that its Secret or token is mounted there"
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
        let credentials = Credentials::new(args);
        assert!(credentials.bearer().is_err_and(|failure| failure.text.contains("--hook-token-file")));
        fs::write(&path, "secret-1\n").unwrap();
        assert_eq!(credentials.bearer().unwrap().unwrap(), "Bearer secret-1");
        assert!(!format!("{credentials:?}").contains("secret-1"), "no secrets in logs");
    }

    #[test]
    fn without_files_nothing_is_shown() {
        let credentials = Credentials::new(HookArgs::default());
        assert!(
            credentials.bearer().unwrap().is_none() && credentials.identity().unwrap().identity.is_none()
        );
    }
}
