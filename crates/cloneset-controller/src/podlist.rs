//! The list of pods that are to be deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use serde_json::json;

use crate::context::Context;
use crate::errors::{SetError, call};
use crate::pod::Pod;

/// Removes the names of pods that do not exist from `scaleStrategy.podsToDelete`. Returns true if there was one: the set has
/// changed.
///
/// # Errors
/// Fails if the request fails.
pub(crate) async fn forget_the_gone(
    context: &Context,
    set: &CloneSet,
    pods: &[Arc<Pod>],
) -> Result<bool, SetError> {
    let listed = &set.spec.scale_strategy.pods_to_delete;
    let names: BTreeSet<String> = pods.iter().map(|pod| pod.name_any()).collect();
    let left: Vec<&String> = listed.iter().filter(|name| names.contains(*name)).collect();
    if left.len() == listed.len() {
        return Ok(false);
    }
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let api: Api<CloneSet> = Api::namespaced(context.client.clone(), &namespace);
    let patch = Patch::Merge(json!({
        "metadata": {"uid": set.uid(), "resourceVersion": set.resource_version()},
        "spec": {"scaleStrategy": {"podsToDelete": left}},
    }));
    let params = PatchParams::default();
    let request = api.patch(&name, &params, &patch);
    call("remove the names of deleted pods from CloneSet", &format!("{namespace}/{name}"), request)
        .await
        .map(|_| true)
}
