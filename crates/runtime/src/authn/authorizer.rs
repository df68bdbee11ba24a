//! Checks the rights of callers.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tonic::{Code, Status};

use podward_core::deletion::request::DeletionKind;

use super::Identity;
use super::cache::AnswerCache;

const DECISION_TTL: Duration = Duration::from_secs(10);
const FAILED_TTL: Duration = Duration::from_millis(250);
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
const CAPACITY: usize = 4096;
const MAX_CONCURRENT_REVIEWS: usize = 32;

/// An action that RBAC can allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// For example `create`.
    pub verb: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name, for example `pods`.
    pub resource: &'a str,
    /// For example `eviction`; empty for the resource itself.
    pub subresource: &'a str,
    /// Namespace; `None` for a cluster-scoped resource.
    pub namespace: Option<&'a str>,
    /// Name of the object; `None` if it has none yet, or for all objects.
    pub name: Option<&'a str>,
}

impl Access<'_> {
    /// Returns the resource as a Role names it, for example `pods/eviction`.
    fn path(&self) -> String {
        let Access { resource, subresource, .. } = self;
        if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") }
    }
}

impl fmt::Display for Access<'_> {
    /// Writes, for example, `update pods in namespace shop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.path())?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        self.namespace.map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

#[derive(Clone, Debug)]
enum AccessVerdict {
    Allowed,
    Denied(String),
    Failed(String),
}

/// Checks the rights of callers. Share it by [`Arc`](std::sync::Arc).
#[derive(Debug)]
pub struct Authorizer {
    reviews: Api<SubjectAccessReview>,
    known: AnswerCache<[u8; 32], AccessVerdict>,
    permits: Semaphore,
}

impl Authorizer {
    /// Uses the API server of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let (known, permits) = (AnswerCache::new(CAPACITY), Semaphore::new(MAX_CONCURRENT_REVIEWS));
        Self { reviews: Api::all(client), known, permits }
    }

    /// Succeeds if RBAC allows `access` to `caller`.
    ///
    /// # Errors
    ///
    /// PERMISSION_DENIED with the missing right; UNAVAILABLE when the API server does not answer.
    pub async fn authorize(&self, caller: &Identity, access: Access<'_>) -> Result<(), Status> {
        let spec = question(caller, access);
        let key = Sha256::digest(serde_json::to_vec(&spec).unwrap_or_default()).into();
        match self.known.get_or_ask(key, self.ask(spec)).await {
            AccessVerdict::Allowed => Ok(()),
            AccessVerdict::Denied(reason) => {
                Err(Status::permission_denied(denial(&caller.user, access, &reason)))
            }
            AccessVerdict::Failed(why) => Err(Status::unavailable(format!(
                "could not ask Kubernetes whether {} may {access}: {why}",
                caller.user
            ))),
        }
    }

    /// Succeeds if RBAC allows `requester` to delete or evict the pod `name`.
    ///
    /// The first question is about all pods of the namespace. Its answer serves other pods too, so that the requests of
    /// a drain or of a workload's controller cost few reviews.
    ///
    /// # Errors
    ///
    /// As [`authorize`](Self::authorize).
    pub async fn authorize_deletion(
        &self,
        requester: &Identity,
        kind: DeletionKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), Status> {
        let (verb, subresource) = match kind {
            DeletionKind::Delete => ("delete", ""),
            DeletionKind::Evict => ("create", "eviction"),
        };
        let namespace = Some(namespace);
        let pods = Access { verb, group: "", resource: "pods", subresource, namespace, name: None };
        // The API server also reviews each pod of a `deletecollection`.
        let collection = Access { verb: "deletecollection", ..pods };
        let others = match kind {
            DeletionKind::Delete => &[Access { name: Some(name), ..pods }, collection][..],
            DeletionKind::Evict => &[Access { name: Some(name), ..pods }],
        };
        let mut result = self.authorize(requester, pods).await;
        for access in others {
            match &result {
                Err(status) if status.code() == Code::PermissionDenied => {}
                _ => return result,
            }
            match self.authorize(requester, *access).await {
                Err(status) if status.code() == Code::PermissionDenied => {}
                other => result = other,
            }
        }
        result
    }

    async fn ask(&self, spec: SubjectAccessReviewSpec) -> (AccessVerdict, Duration) {
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let asked = tokio::time::timeout(REVIEW_TIMEOUT, async {
            // Never closed.
            let _permit = self.permits.acquire().await;
            self.reviews.create(&PostParams::default(), &review).await
        });
        match asked.await {
            Ok(Ok(answer)) => {
                let status = answer.status.unwrap_or_default();
                let denied = || AccessVerdict::Denied(status.reason.unwrap_or_default());
                let allowed = status.allowed && status.denied != Some(true);
                (if allowed { AccessVerdict::Allowed } else { denied() }, DECISION_TTL)
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    "could not create a SubjectAccessReview: {error}; check this service's RBAC, and the API server"
                );
                (AccessVerdict::Failed(error.to_string()), FAILED_TTL)
            }
            Err(_) => (AccessVerdict::Failed(format!("no answer within {REVIEW_TIMEOUT:?}")), FAILED_TTL),
        }
    }
}

fn question(caller: &Identity, access: Access<'_>) -> SubjectAccessReviewSpec {
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    let resource_attributes = ResourceAttributes {
        verb: owned(Some(access.verb)),
        group: owned(Some(access.group)),
        resource: owned(Some(access.resource)),
        subresource: owned(Some(access.subresource).filter(|name| !name.is_empty())),
        namespace: owned(access.namespace),
        name: owned(access.name),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: Some(caller.user.clone()),
        uid: caller.uid.clone(),
        groups: Some(caller.groups.clone()),
        extra: (!caller.extra.is_empty()).then(|| caller.extra.clone()),
        resource_attributes: Some(resource_attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

fn denial(user: &str, access: Access<'_>, reason: &str) -> String {
    let kind = if access.namespace.is_some() { "Role or ClusterRole" } else { "ClusterRole" };
    let (Access { verb, group, .. }, resource) = (access, access.path());
    let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!(
        "user {user} may not {access}{because}; ask for a {kind} with apiGroups [{group:?}], \
         resources [{resource:?}], verbs [{verb:?}]"
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
            subresource: "",
            namespace: None,
            name: None,
        };
        assert_eq!(
            denial("jane", access, ""),
            "user jane may not create lifecyclehooks.podward.io; ask for a ClusterRole with \
             apiGroups [\"podward.io\"], resources [\"lifecyclehooks\"], verbs [\"create\"]"
        );
        let access = Access {
            verb: "create",
            group: "",
            resource: "pods",
            subresource: "eviction",
            namespace: Some("shop"),
            name: None,
        };
        assert!(
            denial("jane", access, "no")
                .starts_with("user jane may not create pods/eviction in namespace shop (no); ask for a Role")
        );
    }
}
