//! The evictions of the pods of an owner that are not finished.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::ListParams;
use kube::{Client, Resource};
use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{DELETE_OPERATION, DELETION_REQUEST, Stage, TO_DELETE};
use podward_kube_util::{ApiError, CachedPod, now, unix_nanos};

use super::pod_list::{self, ACTIVE, ListedPart};

/// An eviction that has not begun to drain its pod after this time, in nanoseconds, does not count: it waits for a rule, a
/// hook, work of the pod or a right, and may wait for long.
const BEGINS_WITHIN: i64 = 120_000_000_000;

/// Returns the names of the pods of `owner`, the owner of `pod`, that an eviction takes out of service, as far as is known.
/// They are read from the API server. An eviction that the workload's controller took over counts, because it may
/// continue. Postponed evictions do not count, nor do pods whose grace period has ended: their node may be lost.
///
/// # Errors
/// Fails if the pods cannot be listed.
pub(crate) async fn unfinished_evictions(
    client: &Client,
    pod: &CachedPod,
    owner: &OwnerReference,
) -> Result<Vec<String>, ApiError> {
    let params = ListParams::default().labels(TO_DELETE).fields(ACTIVE);
    let what = "list the evictions of the pods with the same owner as";
    let list = pod_list::list(client, &pod.key(), what, params, ListedPart::Metadata).await?;
    let now = now();
    let evicted = list.pods.into_iter().filter(|pod| {
        let request = || pod.annotations.get(DELETION_REQUEST).and_then(|text| DeletionRequest::parse(text));
        pod.is_of(owner) && is_evicted(request(), &pod.labels, pod.deletion_timestamp.as_ref(), now)
    });
    Ok(evicted.map(|pod| pod.name).collect())
}

/// Returns whether an eviction takes `pod` out of service, as [`unfinished_evictions`] counts them.
pub(crate) fn is_being_evicted(pod: &CachedPod) -> bool {
    is_evicted(pod.deletion_request(), pod.labels(), pod.meta().deletion_timestamp.as_ref(), now())
}

fn is_evicted(
    request: Option<DeletionRequest>,
    labels: &BTreeMap<String, String>,
    deletion_timestamp: Option<&Time>,
    now: UnixNanos,
) -> bool {
    let Some(request) = request else { return false };
    if request.kind != DeletionKind::Evict && request.replaced_eviction.is_none() {
        return false;
    }
    match deletion_timestamp {
        Some(end) => unix_nanos(end.0) > now,
        None => {
            let begins = labels.contains_key(&Stage::PreChecked.key(DELETE_OPERATION));
            let is_new = now.0.saturating_sub(request.requested_at) < BEGINS_WITHIN;
            request.not_before.is_none() && (begins || is_new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_counts_while_it_may_take_the_pod_out_of_service() {
        let now = UnixNanos(1_700_000_000_000_000_000);
        let minutes = |count: i64| UnixNanos(now.0 - count * 60_000_000_000);
        let request = |minutes_ago| DeletionRequest::new(DeletionKind::Evict, "vpa", minutes(minutes_ago));
        let is_evicted = |request: DeletionRequest, label: Option<Stage>, end: Option<UnixNanos>| {
            let labels = label.map(|stage| (stage.key(DELETE_OPERATION), "1".to_owned()));
            let end = end.map(|end| Time(end.to_rfc3339().parse().unwrap()));
            is_evicted(Some(request), &labels.into_iter().collect(), end.as_ref(), now)
        };
        assert!(is_evicted(request(1), None, None));
        assert!(!is_evicted(request(3), None, None), "it waits for long");
        assert!(is_evicted(request(30), Some(Stage::PreChecked), None));
        assert!(!is_evicted(request(3), Some(Stage::PreCheck), None));
        let postponed = DeletionRequest { not_before: Some(now.0), ..request(1) };
        assert!(!is_evicted(postponed, None, None));
        assert!(is_evicted(request(30), None, Some(minutes(-1))), "its grace period");
        assert!(!is_evicted(request(30), None, Some(minutes(1))), "its node may be lost");
        let delete = DeletionRequest { kind: DeletionKind::Delete, ..request(1) };
        assert!(!is_evicted(delete.clone(), None, None));
        let taken_over = DeletionRequest { replaced_eviction: Some(Box::new(request(1))), ..delete };
        assert!(is_evicted(taken_over, None, None));
    }
}
