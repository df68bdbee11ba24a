//! Authentication of callers: Podward sends a bearer token, and the API server reviews it.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tonic::{Status, metadata::MetadataMap};

/// The time for which a review is cached.
const CACHE_TIME: Duration = Duration::from_secs(10);
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts calls of one user.
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) user: String,
    pub(crate) audience: String,
    /// The last accepted token and the time of its review. There is one caller, so there is one token.
    pub(crate) known: Mutex<Option<(String, Instant)>>,
}

impl Caller {
    /// Checks that the call is from the user.
    ///
    /// # Errors
    /// UNAUTHENTICATED if there is no valid token, PERMISSION_DENIED if it belongs to another user, UNAVAILABLE if
    /// the API server does not answer.
    pub(crate) async fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let token =
            metadata.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| Status::unauthenticated("send `authorization: Bearer <token>`"))?;
        let mut known = self.known.lock().await;
        if known.as_ref().is_some_and(|(known, since)| known == token && since.elapsed() < CACHE_TIME) {
            return Ok(());
        }
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            // Each hook has an audience of its own. The server of another hook cannot use its token here.
            audiences: Some(vec![self.audience.clone()]),
        };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let asked = timeout(REVIEW_TIMEOUT, api.create(&PostParams::default(), &review)).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer.status.unwrap_or_default(),
            Ok(Err(error)) => {
                return Err(Status::unavailable(format!("could not review the token: {error}")));
            }
            Err(_) => return Err(Status::unavailable("the API server did not review the token in time")),
        };
        let is_for_us = answer.audiences.is_some_and(|audiences| audiences.contains(&self.audience));
        if answer.authenticated != Some(true) || !is_for_us {
            let why = answer.error.unwrap_or_default();
            return Err(Status::unauthenticated(format!("the token is not valid here: {why}")));
        }
        let user = answer.user.and_then(|user| user.username).unwrap_or_default();
        if user != self.user {
            return Err(Status::permission_denied(format!("{user} may not call this hook")));
        }
        *known = Some((token.to_owned(), Instant::now()));
        Ok(())
    }
}
