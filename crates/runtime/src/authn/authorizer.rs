//! What a caller may do.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tonic::Status;

use super::Identity;
use super::cache::Cache;

const GOOD_FOR: Duration = Duration::from_secs(10);
const FAILED_FOR: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(5);
const CAPACITY: usize = 4096;
const AT_ONCE: usize = 32;

/// Something that RBAC may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// As in `create`.
    pub verb: &'a str,
    /// API group; empty for the core's.
    pub group: &'a str,
    /// Plural, as in `pods`.
    pub resource: &'a str,
    /// `None` for what has no namespace.
    pub namespace: Option<&'a str>,
    /// Name of the object; `None` where it has none yet, and for all.
    pub name: Option<&'a str>,
}

impl fmt::Display for Access<'_> {
    /// As in `update pods in namespace shop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        self.namespace.map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

#[derive(Clone, Debug)]
enum Verdict {
    Allowed,
    Denied(String),
    Failed(String),
}

/// Asks what callers may do. Cheap to share by [`Arc`](std::sync::Arc).
#[derive(Debug)]
pub struct Authorizer {
    reviews: Api<SubjectAccessReview>,
    known: Cache<[u8; 32], Verdict>,
    places: Semaphore,
}

impl Authorizer {
    /// Asks the API server of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let (known, places) = (Cache::new(CAPACITY), Semaphore::new(AT_ONCE));
        Self { reviews: Api::all(client), known, places }
    }

    /// Gives nothing if `who` may do `access`.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the right that is missing; UNAVAILABLE when the API server can't be asked.
    pub async fn authorize(&self, who: &Identity, access: Access<'_>) -> Result<(), Status> {
        let spec = question(who, access);
        let key = Sha256::digest(serde_json::to_vec(&spec).unwrap_or_default()).into();
        match self.known.get_or_ask(key, self.ask(spec)).await {
            Verdict::Allowed => Ok(()),
            Verdict::Denied(reason) => Err(Status::permission_denied(denial(&who.user, access, &reason))),
            Verdict::Failed(why) => Err(Status::unavailable(format!(
                "could not ask Kubernetes whether {} may {access}: {why}",
                who.user
            ))),
        }
    }

    async fn ask(&self, spec: SubjectAccessReviewSpec) -> (Verdict, Duration) {
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let asked = tokio::time::timeout(PATIENCE, async {
            // Never closed.
            let _place = self.places.acquire().await;
            self.reviews.create(&PostParams::default(), &review).await
        });
        match asked.await {
            Ok(Ok(answer)) => {
                let status = answer.status.unwrap_or_default();
                let denied = || Verdict::Denied(status.reason.unwrap_or_default());
                let allowed = status.allowed && status.denied != Some(true);
                (if allowed { Verdict::Allowed } else { denied() }, GOOD_FOR)
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    "could not create a SubjectAccessReview: {error}; is the right to do so missing, or the API server away?"
                );
                (Verdict::Failed(error.to_string()), FAILED_FOR)
            }
            Err(_) => (Verdict::Failed(format!("no answer within {PATIENCE:?}")), FAILED_FOR),
        }
    }
}

fn question(who: &Identity, access: Access<'_>) -> SubjectAccessReviewSpec {
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    let resource_attributes = ResourceAttributes {
        verb: owned(Some(access.verb)),
        group: owned(Some(access.group)),
        resource: owned(Some(access.resource)),
        namespace: owned(access.namespace),
        name: owned(access.name),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: Some(who.user.clone()),
        uid: who.uid.clone(),
        groups: Some(who.groups.clone()),
        extra: (!who.extra.is_empty()).then(|| who.extra.clone()),
        resource_attributes: Some(resource_attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

fn denial(user: &str, access: Access<'_>, reason: &str) -> String {
    let kind = if access.namespace.is_some() { "Role or ClusterRole" } else { "ClusterRole" };
    let Access { verb, group, resource, .. } = access;
    let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!(
        "user {user} may not {access}{because}; ask for a {kind} with apiGroups [{group:?}], resources [{resource:?}], verbs [{verb:?}]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_says_what_to_ask_for() {
        let access = Access {
            verb: "create",
            group: "podward.io",
            resource: "lifecyclehooks",
            namespace: None,
            name: None,
        };
        assert_eq!(
            denial("jane", access, ""),
            "user jane may not create lifecyclehooks.podward.io; ask for a ClusterRole with apiGroups [\"podward.io\"], \
             resources [\"lifecyclehooks\"], verbs [\"create\"]"
        );
        let access =
            Access { verb: "update", group: "", resource: "pods", namespace: Some("shop"), name: None };
        assert!(
            denial("jane", access, "no")
                .starts_with("user jane may not update pods in namespace shop (no); ask for a Role")
        );
    }
}
