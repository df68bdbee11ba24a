//! Identifies callers.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tonic::{Extensions, Request, Status};

use super::cache::AnswerCache;
use super::{CertificateUser, Identity};

const VALID_TTL: Duration = Duration::from_secs(10);
const INVALID_TTL: Duration = Duration::from_secs(2);
/// Callers that wait for the same answer share a failure, so that they do not wait one after the other.
const FAILED_TTL: Duration = Duration::from_millis(250);
/// The API server gets this time for one review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
const CAPACITY: usize = 4096;
/// Reviews at the same time.
pub(crate) const MAX_CONCURRENT_REVIEWS: usize = 32;

/// The result of reviewing a token.
#[derive(Clone, Debug)]
enum TokenVerdict {
    Valid(Arc<Identity>),
    Invalid(String),
    Failed(String),
}

/// Identifies callers. Share it by [`Arc`].
#[derive(Debug)]
pub struct Authenticator {
    reviews: Api<TokenReview>,
    audience: Option<String>,
    /// Whether tokens for the API server are accepted too.
    accepts_api_server: bool,
    known: AnswerCache<[u8; 32], TokenVerdict>,
    permits: Semaphore,
}

impl Authenticator {
    /// Uses the API server of `client`. The audience of a token must be the API server itself or `audience`.
    #[must_use]
    pub fn new(client: Client, audience: Option<String>) -> Self {
        Self::with_audience(client, audience, true)
    }

    /// Uses the API server of `client`. The audience of a token must be `audience`: another receiver of tokens can't use
    /// them here.
    #[must_use]
    pub fn only_for(client: Client, audience: String) -> Self {
        Self::with_audience(client, Some(audience), false)
    }

    fn with_audience(client: Client, audience: Option<String>, accepts_api_server: bool) -> Self {
        let (known, permits) = (AnswerCache::new(CAPACITY), Semaphore::new(MAX_CONCURRENT_REVIEWS));
        Self { reviews: Api::all(client), audience, accepts_api_server, known, permits }
    }

    /// Returns the caller that sent `request`. On a port with [`Services::authenticate`], that is the identity which the
    /// server has found by the head of the request.
    ///
    /// [`Services::authenticate`]: crate::grpc::Services::authenticate
    ///
    /// # Errors
    ///
    /// UNAUTHENTICATED when credentials are missing or wrong; UNAVAILABLE when the API server does not answer.
    pub async fn authenticate<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        match request.extensions().get::<Arc<Identity>>() {
            Some(identity) => Ok(Arc::clone(identity)),
            None => self.identify(&request.metadata().clone().into_headers(), request.extensions()).await,
        }
    }

    /// As [`authenticate`](Self::authenticate), for the parts of a request. A token takes precedence over a client
    /// certificate.
    ///
    /// # Errors
    ///
    /// As [`authenticate`](Self::authenticate).
    pub async fn identify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Arc<Identity>, Status> {
        if let Some(token) = bearer_token(headers)? {
            return self.review(token).await;
        }
        of_certificate(extensions)
    }

    /// Returns the caller if the API server need not be asked: the token was accepted a short time ago, or there is a
    /// client certificate.
    pub(crate) fn known(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Arc<Identity>> {
        if let Some(token) = bearer_token(headers).ok()? {
            return match self.known.get(&key_of(token))? {
                TokenVerdict::Valid(identity) => Some(identity),
                TokenVerdict::Invalid(_) | TokenVerdict::Failed(_) => None,
            };
        }
        of_certificate(extensions).ok()
    }

    async fn review(&self, token: &str) -> Result<Arc<Identity>, Status> {
        match self.known.get_or_ask(key_of(token), self.ask(token)).await {
            TokenVerdict::Valid(identity) => Ok(identity),
            TokenVerdict::Invalid(why) => {
                Err(Status::unauthenticated(format!("Kubernetes doesn't accept the token: {why}")))
            }
            TokenVerdict::Failed(why) => {
                Err(Status::unavailable(format!("could not ask Kubernetes who the token belongs to: {why}")))
            }
        }
    }

    async fn ask(&self, token: &str) -> (TokenVerdict, Duration) {
        let asked = tokio::time::timeout(REVIEW_TIMEOUT, async {
            // Never closed.
            let _permit = self.permits.acquire().await;
            if !self.accepts_api_server {
                return self.ask_for(token, self.audience.as_ref()).await;
            }
            let verdict = self.ask_for(token, None).await?;
            match (&verdict, &self.audience) {
                (TokenVerdict::Invalid(_), Some(audience)) => self.ask_for(token, Some(audience)).await,
                _ => Ok(verdict),
            }
        });
        match asked.await {
            Ok(Ok(verdict @ TokenVerdict::Valid(_))) => (verdict, VALID_TTL),
            Ok(Ok(verdict)) => (verdict, INVALID_TTL),
            Ok(Err(error)) => {
                tracing::warn!(
                    "could not create a TokenReview: {error}; check this service's RBAC, and the API server"
                );
                (TokenVerdict::Failed(error.to_string()), FAILED_TTL)
            }
            Err(_) => (TokenVerdict::Failed(format!("no answer within {REVIEW_TIMEOUT:?}")), FAILED_TTL),
        }
    }

    async fn ask_for(&self, token: &str, audience: Option<&String>) -> kube::Result<TokenVerdict> {
        let spec = TokenReviewSpec {
            token: token.to_owned().into(),
            audiences: audience.map(|audience| vec![audience.clone()]),
        };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let answer = self.reviews.create(&PostParams::default(), &review).await?;
        Ok(verdict_of(answer.status.unwrap_or_default(), audience))
    }
}

/// Returns the user of the connection's client certificate.
fn of_certificate(extensions: &Extensions) -> Result<Arc<Identity>, Status> {
    match extensions.get::<Arc<CertificateUser>>() {
        Some(user) if user.has_expired() => Err(Status::unauthenticated(
            "the client certificate of this connection has expired; connect with a new one",
        )),
        Some(user) => Ok(Arc::new(user.identity.clone())),
        None => Err(Status::unauthenticated(
            "the request has no credentials; send a Kubernetes token as the metadata \
             `authorization: Bearer <token>`, or connect with a client certificate of an authority that this server trusts",
        )),
    }
}

/// Returns the key of a token in the cache, which does not store tokens.
fn key_of(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn verdict_of(status: TokenReviewStatus, audience: Option<&String>) -> TokenVerdict {
    // Without an audience the API server has checked for its own.
    let for_us = audience.is_none_or(|ours| status.audiences.is_some_and(|theirs| theirs.contains(ours)));
    match status.user {
        Some(UserInfo { username: Some(user), uid, groups, extra })
            if status.authenticated == Some(true) && for_us =>
        {
            TokenVerdict::Valid(Arc::new(Identity {
                user,
                uid: uid.filter(|uid| !uid.is_empty()),
                groups: groups.unwrap_or_default(),
                extra: extra.unwrap_or_default(),
            }))
        }
        _ => TokenVerdict::Invalid(status.error.filter(|error| !error.is_empty()).unwrap_or_else(|| {
            "it has expired, was revoked, is for another audience, or is no token of this cluster".to_owned()
        })),
    }
}

/// Returns the token in the header `authorization`; `None` if there is no such header.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let token = value.to_str().ok().and_then(|text| text.split_once(' ')).and_then(|(scheme, token)| {
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    });
    // The error does not contain the value, because it may be a secret.
    token
        .map(Some)
        .ok_or_else(|| Status::unauthenticated("the metadata `authorization` must be `Bearer <token>`"))
}
