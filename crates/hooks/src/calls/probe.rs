//! The check of a hook server before its hook is registered.

use std::sync::Arc;
use std::time::Duration;

use podward_runtime::address_policy::GuardedDialer;

use crate::calls::credentials::{HookArgs, HookCredentials};
use crate::calls::endpoint::EndpointClient;
use crate::registration::registered::endpoint;

/// The limit of the request that a probe sends.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks hook servers with the client that calls use: the same trusted authorities and the same client certificate.
/// Clones share the credentials.
#[derive(Clone, Debug)]
pub struct HookProbe {
    credentials: Arc<HookCredentials>,
}

impl HookProbe {
    /// Returns a probe that presents the client certificate in `args`. It sends no token. `dialer`
    /// connects to the servers of hooks that are limited to a namespace.
    #[must_use]
    pub fn new(args: HookArgs, dialer: GuardedDialer) -> Self {
        HookProbe { credentials: Arc::new(HookCredentials::new(args, None, dialer)) }
    }

    /// Connects to the hook server at `server` and sends one request of the gRPC health protocol. Any answer of the
    /// server will do, because a server with TLS 1.3 rejects a client certificate only after the handshake.
    ///
    /// `is_guarded` is true for a hook that is limited to a namespace: the address policy applies, and the reason of a
    /// failed connection is only in the log.
    ///
    /// # Errors
    /// If the server cannot be reached. The text is the reason.
    pub async fn probe(&self, server: &podward_api::Endpoint, is_guarded: bool) -> Result<(), String> {
        let client =
            EndpointClient::new(endpoint(server, is_guarded)?, PROBE_TIMEOUT, self.credentials.clone(), None);
        client.check().await.map(drop).map_err(|failure| failure.text)
    }
}
