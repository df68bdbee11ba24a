//! Who calls: Podward sends a bearer token, and the API server says whose it is.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tonic::{Status, metadata::MetadataMap};

/// How long an answer of the API server holds.
const GOOD_FOR: Duration = Duration::from_secs(10);
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets one user in.
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) user: String,
    pub(crate) audience: String,
    /// The token that was let in last. There is one caller, hence one token.
    pub(crate) known: Mutex<Option<(String, Instant)>>,
}

impl Caller {
    /// Whether the call is from the user.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a valid token, PERMISSION_DENIED for somebody else's, UNAVAILABLE when the API server doesn't say.
    pub(crate) async fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let token =
            metadata.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| Status::unauthenticated("send `authorization: Bearer <token>`"))?;
        let mut known = self.known.lock().await;
        if known.as_ref().is_some_and(|(known, since)| known == token && since.elapsed() < GOOD_FOR) {
            return Ok(());
        }
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            // A token for another audience may be a stolen one: somebody who was sent it sends it on.
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
        if answer.authenticated != Some(true) {
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
