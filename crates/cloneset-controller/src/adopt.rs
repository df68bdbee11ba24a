//! Objects that match a set and that nothing controls, and pods of a set that do not match it any more.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_core::cloneset::keys;
use podward_core::hooks::Selector;
use serde_json::json;

use crate::cache::OwnedCache;
use crate::context::Context;
use crate::errors::{SetError, call};
use crate::observe::is_active;
use crate::slim::Slim;
use crate::template::{Owner, claim_name};

/// Makes the set the controller of pods, revisions and claims that match it and that nothing controls, and ends its control
/// of pods that do not match it. `kubectl delete --cascade=orphan` leaves such objects behind, and people take pods away by
/// their labels.
///
/// # Errors
/// Fails if a request fails.
pub(crate) async fn adopt(context: &Context, set: &CloneSet, owner: &Owner) -> Result<(), SetError> {
    let Ok(selector) = podward_api::compile_selector(&set.spec.selector) else { return Ok(()) };
    let own = context.pods.of(&owner.uid);
    for pod in own.iter().filter(|pod| is_active(pod) && !matches(&selector, &***pod)) {
        let mut references = pod.owner_references().to_vec();
        references.retain(|reference| reference.uid != owner.uid);
        write(context, &context.pods, pod, "end the control of pod", references).await?;
    }
    let (mut pods, mut revisions, mut claims) = (
        context.pods.orphans(&owner.namespace),
        context.revisions.orphans(&owner.namespace),
        context.claims.orphans(&owner.namespace),
    );
    pods.retain(|pod| is_active(pod) && matches(&selector, &**pod));
    revisions.retain(|revision| matches(&selector, &**revision) && is_live(&**revision));
    claims.retain(|claim| is_live(&**claim) && is_claim_of(set, owner, &**claim));
    if pods.is_empty() && revisions.is_empty() && claims.is_empty() {
        return Ok(());
    }
    // The garbage collector deletes what belongs to a set that does not exist.
    if !exists(context, owner).await? {
        return Ok(());
    }
    for revision in revisions {
        take(context, &context.revisions, &revision, "adopt ControllerRevision", owner).await?;
    }
    for claim in claims {
        take(context, &context.claims, &claim, "adopt PersistentVolumeClaim", owner).await?;
    }
    for pod in pods {
        take(context, &context.pods, &pod, "adopt pod", owner).await?;
    }
    Ok(())
}

fn matches(selector: &Selector, object: &impl ResourceExt) -> bool {
    selector.matches(object.labels())
}

fn is_live(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_none()
}

/// Returns true if the claim has the name of a claim of the pod with its instance id.
fn is_claim_of(set: &CloneSet, owner: &Owner, claim: &impl ResourceExt) -> bool {
    let Some(id) = claim.labels().get(keys::INSTANCE_ID) else { return false };
    let templates = set.volume_claims().unwrap_or_default();
    let names = templates.into_iter().filter_map(|template| template.metadata.name);
    names.into_iter().any(|name| claim.name_any() == claim_name(&name, owner, id))
}

/// Returns true if the set exists and is not being deleted.
async fn exists(context: &Context, owner: &Owner) -> Result<bool, SetError> {
    let api: Api<CloneSet> = Api::namespaced(context.client.clone(), &owner.namespace);
    let object = format!("{}/{}", owner.namespace, owner.name);
    let found = call("read CloneSet", &object, api.get_opt(&owner.name)).await?;
    Ok(found.is_some_and(|set| set.uid().as_ref() == Some(&owner.uid) && is_live(&set)))
}

async fn take<K: Slim>(
    context: &Context,
    cache: &OwnedCache<K>,
    object: &Arc<K>,
    what: &'static str,
    owner: &Owner,
) -> Result<(), SetError> {
    let mut references = object.owner_references().to_vec();
    references.push(owner.reference());
    write(context, cache, object, what, references).await
}

/// Replaces the owners of an object that was not changed since.
async fn write<K: Slim>(
    context: &Context,
    cache: &OwnedCache<K>,
    object: &Arc<K>,
    what: &'static str,
    references: Vec<OwnerReference>,
) -> Result<(), SetError> {
    // There may be many.
    let _work = context.progress.begin();
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let patch = Patch::Merge(json!({"metadata": {
        "uid": object.uid(), "resourceVersion": object.resource_version(), "ownerReferences": references,
    }}));
    let params = PatchParams::default();
    let written = call(what, &format!("{namespace}/{name}"), api.patch(&name, &params, &patch)).await?;
    tracing::info!(object = %format!("{namespace}/{name}"), "{what}");
    cache.store(written);
    Ok(())
}
