//! The operations of the pods of a workload, also of pods that are gone.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, ObjectReference, Pod as ApiPod};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use podward_core::history;
use podward_core::keys::HISTORY;

use super::traced::{Traced, TracedOperation};
use crate::api::list_all;
use crate::parsed::parsed;
use crate::workload;
use crate::workload_kind::WorkloadKind;

/// The operations that are shown.
const MOST: usize = 20;
/// The `reportingController` of the events about deleted pods.
const CONTROLLER: &str = "podward.io/lifecycle-controller";

/// Returns the latest operations of the pods of a workload; with `id`, only those with this id.
///
/// # Errors
/// When the workload, its pods or the events cannot be read.
pub(super) async fn of_workload(
    client: Client,
    namespace: &str,
    kind: WorkloadKind,
    name: &str,
    id: Option<&str>,
) -> Result<Traced> {
    let object = format!("{} {namespace}/{name}", kind.word());
    let params = workload::pods_of(&workload::find(&client, namespace, kind, name).await?)?;
    let pods: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<ApiPod>(&()));
    let mut operations = Vec::new();
    for pod in list_all(&pods, params).await.with_context(|| format!("list the pods of {object}"))? {
        operations.extend(TracedOperation::all_of(&parsed(&pod)?));
    }
    let events: Api<Event> = Api::namespaced(client, namespace);
    let params = ListParams::default().fields(&format!("reportingComponent={CONTROLLER}"));
    let events = list_all(&events, params).await.with_context(|| format!("list events in {namespace}"))?;
    for event in events.iter().filter(|event| event.related.as_ref().is_some_and(|it| is_of(it, kind, name)))
    {
        let Some(text) = event.annotations().get(HISTORY) else { continue };
        let ObjectReference { name: pod, uid, .. } = &event.involved_object;
        let (pod, uid) = (pod.as_deref().unwrap_or_default(), uid.as_deref().unwrap_or_default());
        operations.extend(TracedOperation::of_records(pod, uid, history::parse(text)));
    }
    operations.retain(|operation| id.is_none_or(|id| operation.record.id == id));
    // A pod that was just deleted is found twice: its event knows the end.
    operations.sort_by_key(|operation| {
        let TracedOperation { pod_uid, record, .. } = operation;
        (record.began, pod_uid.clone(), record.id.clone(), record.outcome.is_none())
    });
    operations.dedup_by_key(|operation| {
        (operation.record.began, operation.pod_uid.clone(), operation.record.id.clone())
    });
    let older = operations.len().saturating_sub(MOST);
    Ok(Traced { object, names_pods: true, operations: operations.split_off(older) })
}

/// Returns whether `owner`, the controller of a pod, is the workload, or a ReplicaSet of the Deployment: their names are
/// the name of the Deployment and a hash without a dash.
fn is_of(owner: &ObjectReference, kind: WorkloadKind, name: &str) -> bool {
    let (owner_kind, owner) = (owner.kind.as_deref(), owner.name.as_deref().unwrap_or_default());
    match kind {
        WorkloadKind::Deployment => {
            let hash = owner.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            owner_kind == Some("ReplicaSet") && hash.is_some_and(|hash| !hash.contains('-'))
        }
        _ => owner_kind == Some(kind.api().2) && owner == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_by_kind_and_name() {
        let owner = |kind: &str, name: &str| ObjectReference {
            kind: Some(kind.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let (deployment, set) = (WorkloadKind::Deployment, WorkloadKind::StatefulSet);
        assert!(is_of(&owner("ReplicaSet", "web-5d4f8"), deployment, "web"));
        assert!(!is_of(&owner("ReplicaSet", "web-api-5d4f8"), deployment, "web"));
        assert!(!is_of(&owner("StatefulSet", "web-5d4f8"), deployment, "web"));
        assert!(is_of(&owner("StatefulSet", "web"), set, "web"));
        assert!(!is_of(&owner("StatefulSet", "web-api"), set, "web"));
    }
}
