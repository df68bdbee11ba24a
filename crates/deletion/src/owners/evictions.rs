//! The evictions of the pods of an owner that are not finished.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::ListParams;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::keys::{DELETION_REQUEST, TO_DELETE};
use podward_kube_util::{ApiError, CachedPod};

use super::pod_list::{self, ACTIVE, ListedPart, PodMetadata};

/// Returns the names of the pods of `owner`, the owner of `pod`, whose eviction is recorded and that are not gone. They
/// are read from the API server. An eviction that the workload's controller took over counts, because it may continue.
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
    let evicted = list.pods.into_iter().filter(|pod| pod.is_of(owner) && is_evicted(pod));
    Ok(evicted.map(|pod| pod.name).collect())
}

fn is_evicted(pod: &PodMetadata) -> bool {
    let request = pod.annotations.get(DELETION_REQUEST).and_then(|text| DeletionRequest::parse(text));
    request.is_some_and(|request| request.kind == DeletionKind::Evict || request.replaced_eviction.is_some())
}
