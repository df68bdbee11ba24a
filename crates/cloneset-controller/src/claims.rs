//! Claims of pods that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;

use crate::context::Context;
use crate::delete::delete;
use crate::errors::{SetError, call};
use crate::observe::is_active;
use crate::own_deletions::{OwnDeletions, requester};
use crate::pod::Pod;
use crate::template::{Owner, hand_over, id, unused_claims};

#[cfg(test)]
mod tests;

/// Deletes the claims of pods that the set has deleted, or has them deleted with the pods while these end. If the set does
/// not reuse claims, also those of pods that others have deleted and of pods that have ended.
///
/// # Errors
/// Fails if a request fails.
pub(crate) async fn clean(context: &Context, set: &CloneSet, owner: &Owner) -> Result<(), SetError> {
    let claims = context.claims.of(&owner.uid);
    if claims.is_empty() {
        context.remember(&owner.uid, |memory| memory.own_deletions = OwnDeletions::default());
        return Ok(());
    }
    let pods = context.pods.of(&owner.uid);
    let user = own_user(context, &pods).await;
    let with_claims: BTreeSet<&str> = claims.iter().filter_map(|claim| id(claim.labels())).collect();
    let own = context.remember(&owner.uid, |memory| {
        memory.own_deletions.retain(|id| with_claims.contains(id));
        memory.own_deletions.observe(&pods, user);
        memory.own_deletions.clone()
    });
    let reuses = !set.spec.scale_strategy.disable_pvc_reuse;
    let taken_away = taken_away(context, owner);
    let goes = |claim: &&PersistentVolumeClaim| {
        let id = id(claim.labels()).unwrap_or_default();
        (!reuses || own.contains(id)) && !taken_away.contains(id)
    };
    let (active, ending): (Vec<_>, Vec<_>) = pods.iter().map(|pod| &**pod).partition(|pod| is_active(pod));
    let unused = unused_claims(owner, active, ending, claims.iter().map(|claim| &**claim).filter(goes));
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &owner.namespace);
    for claim in unused.delete {
        let _work = context.progress.begin();
        let preconditions = Preconditions { uid: claim.uid(), resource_version: None };
        let name = claim.name_any();
        delete(&api, &context.claims, claim, ("delete PersistentVolumeClaim", &name), preconditions).await?;
    }
    for (claim, pod) in unused.hand_over {
        let Some(patch) = hand_over(owner, claim, pod) else { continue };
        let _work = context.progress.begin();
        let name = claim.name_any();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        call("make a pod the owner of PersistentVolumeClaim", &name, api.patch(&name, &params, &patch))
            .await?;
        context.claims.removed(claim);
    }
    Ok(())
}

/// Returns the ids of the pods that were taken away from the set, by their names. Nothing controls them, and they keep their
/// names and claims for as long as their owner wants.
pub(crate) fn taken_away(context: &Context, owner: &Owner) -> BTreeSet<String> {
    let prefix = format!("{}-", owner.name);
    let orphans = context.pods.orphans(&owner.namespace);
    orphans.iter().filter_map(|pod| pod.name_any().strip_prefix(&prefix).map(str::to_owned)).collect()
}

/// Returns the name of the user that this process is, if it is needed: Podward holds the deletion of a pod. `None` if it is
/// not known.
async fn own_user<'a>(context: &'a Context, pods: &[Arc<Pod>]) -> Option<&'a str> {
    if !pods.iter().any(|pod| requester(pod).is_some()) {
        return None;
    }
    let read = async || {
        let api: Api<SelfSubjectReview> = Api::all(context.client.clone());
        let (params, review) = (PostParams::default(), SelfSubjectReview::default());
        let review = call("read the user name", "of this process", api.create(&params, &review)).await?;
        Ok::<_, SetError>(review.status.and_then(|it| it.user_info?.username).unwrap_or_default())
    };
    match context.user.get_or_try_init(read).await {
        Ok(user) => Some(user).filter(|it| !it.is_empty()).map(String::as_str),
        Err(error) => {
            tracing::warn!(%error, "claims of pods whose deletion Podward holds for their CloneSet are kept");
            None
        }
    }
}
