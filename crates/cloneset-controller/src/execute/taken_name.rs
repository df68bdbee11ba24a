//! The name of a new pod, if another pod has it.

use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use podward_api::CloneSet;

use crate::context::Context;
use crate::errors::{SetError, call};
use crate::owned::set_of;
use crate::pod::Pod;
use crate::template::{Owner, id};

/// Returns the pod that has this name. `None` if it is gone.
///
/// # Errors
/// Fails if the request fails.
pub(super) async fn holder(context: &Context, owner: &Owner, name: &str) -> Result<Option<Pod>, SetError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &owner.namespace);
    // A pod of another owner is in no cache.
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let object = format!("{}/{name}", owner.namespace);
    let found = call("list pod", &object, api.list(&params)).await?;
    Ok(found.items.into_iter().next())
}

/// Returns true if it is the pod of the set with this identity, which the watch has not delivered yet.
pub(super) fn is_own(owner: &Owner, pod: &Pod, wanted: &str) -> bool {
    set_of(pod).is_some_and(|set| set.uid == owner.uid) && id(pod.labels()) == Some(wanted)
}

/// Reports that a new pod gets another name.
pub(super) fn report(context: &Context, set: &CloneSet, pod: &Pod) {
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let whose = controller.map_or_else(
        || "that nothing controls".to_owned(),
        |owner| format!("of {} {}", owner.kind, owner.name),
    );
    let claims = match set.spec.volume_claim_templates.is_empty() {
        true => "",
        false => ", and other PersistentVolumeClaims",
    };
    let note = format!("a pod {whose} has the name {}: a new pod gets another name{claims}", pod.name_any());
    context.events.warning_about(set.object_ref(&()), "NameTaken", note);
}
