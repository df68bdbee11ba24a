//! Dry runs of deletions as their requesters.
//!
//! The validating-webhook holds a delete and answers 429. Another validating webhook that denies the same delete runs at
//! the same time, so its denial is lost, and Podward deletes the pod later with its own account. A dry run as the
//! requester shows that denial.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use kube::api::{DeleteParams, PostParams};
use kube::core::{Request, params};
use kube::{Client, Resource};
use parking_lot::Mutex;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_kube_util::{ApiError, CachedPod, PodKey, pod_call};
use serde_json::Value;

/// The time for which the result of a dry run is used while the pod is in service.
const RESULT_VALID_FOR: Duration = Duration::from_secs(20);
/// Members of this group cannot be impersonated with a limited role
/// (apiserver/pkg/endpoints/filters/impersonation/mode.go).
const MASTERS: &str = "system:masters";

/// Tries deletions as dry runs in the name of their requesters.
pub(crate) struct DryRuns {
    client: Client,
    results: Mutex<RecentResults>,
}

impl DryRuns {
    pub(crate) fn new(client: Client) -> Self {
        DryRuns { client, results: Mutex::default() }
    }

    /// Returns the reason for which the API server denies the deletion of `pod` to its requester. `None` if it allows the
    /// deletion, or the requester cannot be impersonated. The result may be some seconds old.
    pub(crate) async fn recent_denial(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
    ) -> Result<Option<String>, ApiError> {
        let key = pod.key();
        let known = self.results.lock().get(&key, request, Instant::now());
        if let Some(denial) = known {
            return Ok(denial);
        }
        let denial = self.denial(pod, request).await?;
        self.results.lock().put(key, request, Instant::now(), denial.clone());
        Ok(denial)
    }

    /// As [`recent_denial`](Self::recent_denial), with a dry run now.
    pub(crate) async fn denial(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
    ) -> Result<Option<String>, ApiError> {
        let (key, user) = (pod.key(), &request.requested_by);
        let Some(call) = dry_run(pod, request) else { return Ok(None) };
        let result =
            pod_call("make a dry run of the deletion of", &key, self.client.request::<Value>(call)).await;
        let source = match result {
            Ok(_) | Err(ApiError::Gone { .. } | ApiError::Conflict { .. }) => return Ok(None),
            Err(ApiError::Refused { source, .. } | ApiError::Api { source, .. }) => source,
            Err(error @ ApiError::TimedOut { .. }) => return Err(error),
        };
        match *source {
            kube::Error::Api(status) if is_denial(status.code, &status.message) => Ok(Some(format!(
                "the API server denies the {} to {user}: {}; it is tried again",
                request.kind.noun(),
                status.message
            ))),
            // The budget has no room, or a webhook does not support dry runs.
            kube::Error::Api(status) if (400..500).contains(&status.code) => Ok(None),
            source => Err(ApiError::api("make a dry run of the deletion of", key, source)),
        }
    }

    /// Discards the result for `pod`, which is gone.
    pub(crate) fn forget(&self, pod: &PodKey) {
        self.results.lock().0.remove(pod);
    }
}

/// The results of dry runs by pod, for a short time.
#[derive(Default)]
struct RecentResults(HashMap<PodKey, RecentResult>);

struct RecentResult {
    at: Instant,
    requester: Requester,
    /// The text of the denial; `None` if the deletion is allowed.
    denial: Option<String>,
}

/// The user, the groups and the kind of a request. The result of a dry run is only about a request with the same.
#[derive(PartialEq)]
struct Requester(String, Vec<String>, DeletionKind);

impl Requester {
    fn of(request: &DeletionRequest) -> Self {
        Requester(request.requested_by.clone(), request.requester_groups.clone(), request.kind)
    }
}

impl RecentResults {
    /// Returns the result for `request` of the pod; `None` if there is none from the time before `now`.
    fn get(&self, pod: &PodKey, request: &DeletionRequest, now: Instant) -> Option<Option<String>> {
        let known = self.0.get(pod)?;
        let is_recent = now.saturating_duration_since(known.at) < RESULT_VALID_FOR;
        (is_recent && known.requester == Requester::of(request)).then(|| known.denial.clone())
    }

    fn put(&mut self, pod: PodKey, request: &DeletionRequest, at: Instant, denial: Option<String>) {
        self.0.insert(pod, RecentResult { at, requester: Requester::of(request), denial });
    }
}

/// Returns whether an answer of the API server is a denial by admission or by RBAC.
fn is_denial(code: u16, message: &str) -> bool {
    matches!(code, 400 | 403 | 422) && !message.contains("does not support dry run")
}

/// Returns the request of the dry run. `None` if the requester cannot be impersonated.
fn dry_run(pod: &CachedPod, request: &DeletionRequest) -> Option<http::Request<Vec<u8>>> {
    let PodKey { namespace, name } = pod.key();
    let requests = Request::new(Pod::url_path(&(), Some(&namespace)));
    let mut call = match request.kind {
        DeletionKind::Delete => {
            let preconditions =
                params::Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
            let params = DeleteParams {
                dry_run: true,
                grace_period_seconds: request.grace_period_seconds,
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            requests.delete(&name, &params).ok()?
        }
        DeletionKind::Evict => {
            let metadata =
                ObjectMeta { name: Some(name.clone()), namespace: Some(namespace), ..ObjectMeta::default() };
            let options = DeleteOptions { dry_run: Some(vec!["All".to_owned()]), ..DeleteOptions::default() };
            let eviction = Eviction { metadata, delete_options: Some(options) };
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let body = serde_json::to_vec(&eviction).ok()?;
            requests.create_subresource("eviction", &name, &params, body).ok()?
        }
    };
    for (header, value) in impersonation(request)? {
        call.headers_mut().append(header, HeaderValue::from_str(&value).ok()?);
    }
    Some(call)
}

/// Returns the headers that impersonate the requester. A service account is impersonated by its name alone.
fn impersonation(request: &DeletionRequest) -> Option<Vec<(HeaderName, String)>> {
    let user = &request.requested_by;
    if user.starts_with("system:node:") || request.requester_groups.iter().any(|group| group == MASTERS) {
        return None;
    }
    let groups = match user.starts_with("system:serviceaccount:") {
        true => Vec::new(),
        false => request.groups(),
    };
    let name = (HeaderName::from_static("impersonate-user"), user.clone());
    let groups = groups.into_iter().map(|group| (HeaderName::from_static("impersonate-group"), group));
    Some(std::iter::once(name).chain(groups).collect())
}

#[cfg(test)]
mod tests {
    use podward_core::UnixNanos;

    use super::*;

    fn headers(user: &str, groups: &[&str]) -> Option<Vec<String>> {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let request = DeletionRequest::new(DeletionKind::Delete, user, UnixNanos(1)).with_groups(&groups);
        Some(impersonation(&request)?.into_iter().map(|(name, value)| format!("{name}: {value}")).collect())
    }

    #[test]
    fn requesters_are_impersonated_where_a_limited_role_allows_it() {
        let jane =
            ["impersonate-user: jane", "impersonate-group: devs", "impersonate-group: system:authenticated"];
        assert_eq!(headers("jane", &["devs"]).unwrap(), jane);
        let account = "system:serviceaccount:shop:bot";
        assert_eq!(
            headers(account, &["system:serviceaccounts"]).unwrap(),
            [format!("impersonate-user: {account}")]
        );
        assert_eq!(headers("admin", &["system:masters"]), None);
        assert_eq!(headers("system:node:n1", &["system:nodes"]), None);
    }

    #[test]
    fn a_result_is_for_its_requester_only() {
        let pod = PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned() };
        let request = |kind, user, group: &str| {
            DeletionRequest::new(kind, user, UnixNanos(1)).with_groups(&[group.to_owned()])
        };
        let jane = request(DeletionKind::Delete, "jane", "devs");
        let (mut results, now) = (RecentResults::default(), Instant::now());
        assert_eq!(results.get(&pod, &jane, now), None);
        results.put(pod.clone(), &jane, now, Some("denied".to_owned()));
        assert_eq!(results.get(&pod, &jane, now), Some(Some("denied".to_owned())));
        assert_eq!(results.get(&pod, &jane, now + RESULT_VALID_FOR), None, "it is old");
        for other in [
            request(DeletionKind::Delete, "joe", "devs"),
            request(DeletionKind::Delete, "jane", "admins"),
            request(DeletionKind::Evict, "jane", "devs"),
        ] {
            assert_eq!(results.get(&pod, &other, now), None, "{other:?}");
        }
        results.put(pod.clone(), &request(DeletionKind::Delete, "joe", "devs"), now, None);
        assert_eq!(results.get(&pod, &request(DeletionKind::Delete, "joe", "devs"), now), Some(None));
    }

    #[test]
    fn only_denials_count() {
        assert!(is_denial(403, "admission webhook \"x\" denied the request: no"));
        assert!(!is_denial(400, "admission webhook \"x\" does not support dry run"));
        assert!(!is_denial(429, "Cannot evict pod as it would violate the pod's disruption budget."));
    }
}
