//! The bearer token that one hook server receives.
//!
//! Every hook has an audience of its own, so that a hook server that passes on the token it received is refused by all
//! others: other hooks, Podward, and the API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use podward_core::hooks::hook_audience;
use podward_runtime::retry::api_call;
use tonic::metadata::{Ascii, MetadataValue};

use crate::questions::failure::CallFailure;

/// The requested lifetime of a token. The API server can grant another one.
const LIFETIME_SECONDS: i64 = 3600;
/// The minimum time between a failed request and the next one, and between two renewals.
const PAUSE: Duration = Duration::from_secs(5);

/// A service account, as `<namespace>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAccount {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::str::FromStr for TokenAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("write it as NAMESPACE/NAME".to_owned()),
        }
    }
}

/// Requests the tokens of all hooks.
#[derive(Clone, Debug)]
pub(crate) struct TokenIssuer {
    accounts: Api<ServiceAccount>,
    account: TokenAccount,
}

impl TokenIssuer {
    pub(crate) fn new(client: Client, account: TokenAccount) -> Self {
        Self { accounts: Api::namespaced(client, &account.namespace), account }
    }

    /// Returns a token with the audience of `hook`.
    async fn request(&self, audience: &str) -> Result<IssuedToken, String> {
        let spec = TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            expiration_seconds: Some(LIFETIME_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let params = PostParams::default();
        let answer = self.accounts.create_token_request(&self.account.name, &params, &request);
        let answer = api_call(answer).await.map_err(|error| error.to_string())?;
        // The granted lifetime. Unlike the time of expiration, it does not depend on the clocks of both sides.
        let granted = answer.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lifetime = Duration::from_secs(granted.unwrap_or(LIFETIME_SECONDS.unsigned_abs()));
        let token = answer.status.map(|status| status.token).unwrap_or_default();
        if token.is_empty() {
            return Err("the API server returned no token".to_owned());
        }
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}")
            .parse()
            .map_err(|_| "the API server's token can't be sent".to_owned())?;
        // Keeps the token out of the header table of HTTP/2 and of debug output.
        header.set_sensitive(true);
        let now = Instant::now();
        Ok(IssuedToken { header, requested: now, renew: now + lifetime * 8 / 10, expires: now + lifetime })
    }
}

#[derive(Clone, Debug)]
struct IssuedToken {
    header: MetadataValue<Ascii>,
    requested: Instant,
    /// From then on it is renewed when it is next used.
    renew: Instant,
    expires: Instant,
}

#[derive(Debug, Default)]
struct TokenState {
    token: Option<IssuedToken>,
    /// The last request that failed, and the reason.
    failed: Option<(Instant, String)>,
}

/// The token of one hook. It is requested when it is first used, and renewed when it has reached 80 % of its lifetime,
/// not for each call.
#[derive(Debug)]
pub(crate) struct HookToken {
    issuer: Arc<TokenIssuer>,
    audience: String,
    state: Mutex<TokenState>,
    /// Held by the call that requests a token.
    requesting: tokio::sync::Mutex<()>,
}

impl HookToken {
    pub(crate) fn new(issuer: Arc<TokenIssuer>, hook: &str) -> Self {
        let (state, requesting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { issuer, audience: hook_audience(hook), state, requesting }
    }

    /// Returns the value of the header `authorization`.
    ///
    /// # Errors
    /// When there is no valid token, and the API server issues none.
    pub(crate) async fn header(&self) -> Result<MetadataValue<Ascii>, CallFailure> {
        let now = Instant::now();
        if let Some(token) = self.valid(now) {
            // While one call renews the token, the others use the present one.
            if now >= token.renew
                && self.may_request(now)
                && let Ok(_turn) = self.requesting.try_lock()
            {
                return Ok(self.request().await.unwrap_or(token.header));
            }
            return Ok(token.header);
        }
        let _turn = self.requesting.lock().await;
        let now = Instant::now();
        if let Some(token) = self.valid(now) {
            return Ok(token.header);
        }
        if !self.may_request(now)
            && let Some((_, problem)) = &self.state.lock().failed
        {
            return Err(self.failure(problem));
        }
        self.request().await.map_err(|problem| self.failure(&problem))
    }

    /// Requests another token at the next call, because the hook server has refused this one: the service account or the
    /// keys of the API server may have been replaced.
    pub(crate) fn refused(&self) {
        if let Some(token) = &mut self.state.lock().token
            && token.requested.elapsed() >= PAUSE
        {
            token.renew = Instant::now();
        }
    }

    fn valid(&self, now: Instant) -> Option<IssuedToken> {
        self.state.lock().token.clone().filter(|token| now < token.expires)
    }

    /// False shortly after a request that failed.
    fn may_request(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.failed.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= PAUSE)
    }

    async fn request(&self) -> Result<MetadataValue<Ascii>, String> {
        let issued = self.issuer.request(&self.audience).await;
        let mut state = self.state.lock();
        match issued {
            Ok(token) => {
                let header = token.header.clone();
                *state = TokenState { token: Some(token), failed: None };
                Ok(header)
            }
            Err(problem) => {
                tracing::warn!(audience = self.audience, problem, "could not request the token of a hook");
                state.failed = Some((Instant::now(), problem.clone()));
                Err(problem)
            }
        }
    }

    fn failure(&self, problem: &str) -> CallFailure {
        let TokenAccount { namespace, name } = &self.issuer.account;
        CallFailure::connection(format!(
            "could not request a token of the service account {namespace}/{name} with the audience {}: {problem}; check \
             the RBAC of the lifecycle-controller (create serviceaccounts/token), and --hook-token-account",
            self.audience
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_a_namespace_and_a_name() {
        let account: TokenAccount = "podward-system/lifecycle-controller".parse().unwrap();
        assert_eq!(
            (account.namespace.as_str(), account.name.as_str()),
            ("podward-system", "lifecycle-controller")
        );
        for text in ["", "a", "/a", "a/", "a/b/c"] {
            assert!(text.parse::<TokenAccount>().is_err(), "{text}");
        }
    }
}
