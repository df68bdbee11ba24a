//! The credentials that hook servers receive: a bearer token for each hook, and a client certificate. The certificate is
//! read again when its files change, as cert-manager rotates them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use kube::Client;
use parking_lot::Mutex;
use podward_runtime::address_policy::GuardedDialer;

use crate::calls::token::{HookToken, TokenAccount, TokenIssuer};
use crate::questions::failure::CallFailure;

/// The minimum time between two reads of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Flags for the credentials that hook servers receive
#[derive(Args, Clone, Debug, Default)]
pub struct HookArgs {
    /// Service account whose tokens are sent to hook servers, normally that of this process. A token is requested for
    /// each hook, with the audience podward.io/hooks/<hook>. By default no token is sent
    #[arg(long, env = "PODWARD_HOOK_TOKEN_ACCOUNT", value_name = "NAMESPACE/NAME")]
    pub hook_token_account: Option<TokenAccount>,
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
    tokens: Option<Arc<TokenIssuer>>,
    pub(crate) dialer: GuardedDialer,
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
    /// Requests tokens with `client`; without one, hook servers receive no token. `dialer` connects to the servers of
    /// hooks that are limited to a namespace.
    pub(crate) fn new(args: HookArgs, client: Option<Client>, dialer: GuardedDialer) -> Self {
        let tokens = client.zip(args.hook_token_account.clone());
        let tokens = tokens.map(|(client, account)| Arc::new(TokenIssuer::new(client, account)));
        HookCredentials { args, tokens, dialer, read: Mutex::default() }
    }

    /// Returns the token of the hook `name`; `None` if no account is configured.
    pub(crate) fn token(&self, name: &str) -> Option<HookToken> {
        self.tokens.as_ref().map(|issuer| HookToken::new(issuer.clone(), name))
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
         Secret is mounted there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_files_nothing_is_shown() {
        let credentials = HookCredentials::new(HookArgs::default(), None, crate::tests::dialer());
        assert!(credentials.token("lb").is_none() && credentials.identity().unwrap().identity.is_none());
    }
}
