//! Claims of pods that are gone.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;

use crate::context::Context;
use crate::delete::delete;
use crate::errors::{SetError, call};
use crate::observe::is_active;
use crate::template::{Owner, hand_over, unused_claims};

/// Deletes the claims that no pod uses, or has them deleted with the pods that end. A set that reuses claims keeps as many
/// as pods are missing.
///
/// # Errors
/// Fails if a request fails.
pub(crate) async fn clean(context: &Context, set: &CloneSet, owner: &Owner) -> Result<(), SetError> {
    let claims = context.claims.of(&owner.uid);
    if claims.is_empty() {
        return Ok(());
    }
    let pods = context.pods.of(&owner.uid);
    let (active, ending): (Vec<_>, Vec<_>) = pods.iter().map(|pod| &**pod).partition(|pod| is_active(pod));
    let missing = usize::try_from(set.spec.replicas).unwrap_or_default().saturating_sub(active.len());
    if missing > 0 && !set.spec.scale_strategy.disable_pvc_reuse {
        return Ok(());
    }
    let unused = unused_claims(owner, active, ending, claims.iter().map(|claim| &**claim));
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
