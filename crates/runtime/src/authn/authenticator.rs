//! Who calls.

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

use super::cache::Cache;
use super::{CertificateUser, Identity};

const GOOD_FOR: Duration = Duration::from_secs(10);
const BAD_FOR: Duration = Duration::from_secs(2);
/// Those who wait for the same answer share a failure, rather than each waiting for one of their own.
const FAILED_FOR: Duration = Duration::from_millis(250);
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);
const CAPACITY: usize = 4096;
/// Reviews under way at a time.
const AT_ONCE: usize = 32;

/// What is known of a token.
#[derive(Clone, Debug)]
enum Verdict {
    Good(Arc<Identity>),
    Bad(String),
    Failed(String),
}

/// Finds out who calls. Cheap to share by [`Arc`].
#[derive(Debug)]
pub struct Authenticator {
    reviews: Api<TokenReview>,
    audience: Option<String>,
    known: Cache<[u8; 32], Verdict>,
    places: Semaphore,
}

impl Authenticator {
    /// Asks the API server of `client`. Tokens must be for the API server itself or, if it is given, for `audience`.
    #[must_use]
    pub fn new(client: Client, audience: Option<String>) -> Self {
        let (known, places) = (Cache::new(CAPACITY), Semaphore::new(AT_ONCE));
        Self { reviews: Api::all(client), audience, known, places }
    }

    /// Who sent `request`.
    ///
    /// # Errors
    /// UNAUTHENTICATED with what is missing or wrong; UNAVAILABLE when the API server can't be asked.
    pub async fn authenticate<T>(&self, request: &Request<T>) -> Result<Arc<Identity>, Status> {
        self.identify(&request.metadata().clone().into_headers(), request.extensions()).await
    }

    /// As [`authenticate`](Self::authenticate), of a request's parts. A token counts for more than a client certificate.
    ///
    /// # Errors
    /// As there.
    pub async fn identify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Arc<Identity>, Status> {
        if let Some(token) = bearer_token(headers)? {
            return self.review(token).await;
        }
        match extensions.get::<Arc<CertificateUser>>() {
            Some(user) if user.has_expired() => Err(Status::unauthenticated(
                "the client certificate of this connection has expired; connect with a new one",
            )),
            Some(user) => Ok(Arc::new(user.identity.clone())),
            None => Err(Status::unauthenticated(
                "who calls? Send a Kubernetes token as the metadata `authorization: Bearer <token>`, or connect with a client \
                 certificate that this server knows the authority of",
            )),
        }
    }

    async fn review(&self, token: &str) -> Result<Arc<Identity>, Status> {
        let key = Sha256::digest(token).into();
        match self.known.get_or_ask(key, self.ask(token)).await {
            Verdict::Good(identity) => Ok(identity),
            Verdict::Bad(why) => {
                Err(Status::unauthenticated(format!("Kubernetes doesn't accept the token: {why}")))
            }
            Verdict::Failed(why) => {
                Err(Status::unavailable(format!("could not ask Kubernetes who the token belongs to: {why}")))
            }
        }
    }

    async fn ask(&self, token: &str) -> (Verdict, Duration) {
        let asked = tokio::time::timeout(PATIENCE, async {
            // Never closed.
            let _place = self.places.acquire().await;
            let verdict = self.ask_for(token, None).await?;
            match (&verdict, &self.audience) {
                (Verdict::Bad(_), Some(audience)) => self.ask_for(token, Some(audience)).await,
                _ => Ok(verdict),
            }
        });
        match asked.await {
            Ok(Ok(verdict @ Verdict::Good(_))) => (verdict, GOOD_FOR),
            Ok(Ok(verdict)) => (verdict, BAD_FOR),
            Ok(Err(error)) => {
                tracing::warn!(
                    "could not create a TokenReview: {error}; is the right to do so missing, or the API server away?"
                );
                (Verdict::Failed(error.to_string()), FAILED_FOR)
            }
            Err(_) => (Verdict::Failed(format!("no answer within {PATIENCE:?}")), FAILED_FOR),
        }
    }

    async fn ask_for(&self, token: &str, audience: Option<&String>) -> kube::Result<Verdict> {
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: audience.map(|audience| vec![audience.clone()]),
        };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let answer = self.reviews.create(&PostParams::default(), &review).await?;
        Ok(judge(answer.status.unwrap_or_default(), audience))
    }
}

fn judge(status: TokenReviewStatus, audience: Option<&String>) -> Verdict {
    // An API server that knows no audiences says nothing of them, and has checked for its own.
    let for_us = audience.is_none_or(|ours| status.audiences.is_some_and(|theirs| theirs.contains(ours)));
    match status.user {
        Some(UserInfo { username: Some(user), uid, groups, extra })
            if status.authenticated == Some(true) && for_us =>
        {
            Verdict::Good(Arc::new(Identity {
                user,
                uid: uid.filter(|uid| !uid.is_empty()),
                groups: groups.unwrap_or_default(),
                extra: extra.unwrap_or_default(),
            }))
        }
        _ => Verdict::Bad(status.error.filter(|error| !error.is_empty()).unwrap_or_else(|| {
            "it has expired, was revoked, is for another audience, or is no token of this cluster".to_owned()
        })),
    }
}

/// The token in `authorization`, if there is that header.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let token = value.to_str().ok().and_then(|text| text.split_once(' ')).and_then(|(scheme, token)| {
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    });
    // The value may be a secret in a wrong place, so it isn't repeated.
    token
        .map(Some)
        .ok_or_else(|| Status::unauthenticated("the metadata `authorization` must be `Bearer <token>`"))
}
