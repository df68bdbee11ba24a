//! The revisions of a set.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_api::clone_set::{CloneSetStatus, HookOptions};
use podward_core::cloneset::keys;
use serde_json::Value;

use crate::context::Context;
use crate::errors::{SetError, call};
use crate::observe::{is_active, spec_of};
use crate::pod::Pod;
use crate::template::{
    NewRevision, Owner, WantedRevision, is_same_revision, raise_patch, short_hash, template_of, to_delete,
    wanted_revision,
};

/// How often another name is tried for a new revision.
const MAX_COLLISIONS: u32 = 16;

/// The revisions of a set.
#[derive(Clone, Debug)]
pub(crate) struct Revisions {
    /// All of them.
    pub(crate) all: Vec<Arc<ControllerRevision>>,
    /// That of the template.
    pub(crate) update: Arc<ControllerRevision>,
    /// The name and the template of the one that pods had before, for pods that keep it.
    pub(crate) current: (String, Value),
    pub(crate) collisions: u32,
}

/// Returns the revisions of a set. If its template has none, it is created.
///
/// # Errors
/// Fails if a request fails, or the template is not one of pods.
pub(crate) async fn revisions(
    context: &Context,
    set: &CloneSet,
    owner: &Owner,
) -> Result<Revisions, SetError> {
    let object = format!("{}/{}", owner.namespace, owner.name);
    let api: Api<ControllerRevision> = Api::namespaced(context.client.clone(), &owner.namespace);
    let status = context.latest_status(set);
    let known = status.collision_count.unwrap_or_default();
    let mut collisions = u32::try_from(known).unwrap_or_default();
    let update = loop {
        let stored = context.revisions.of(&owner.uid);
        let new = NewRevision {
            set: owner,
            annotations: set.annotations(),
            template: &set.spec.template,
            claim_templates: &set.spec.volume_claim_templates,
            collision_count: collisions,
        };
        let wanted = wanted_revision(&stored, &new)
            .map_err(|problem| SetError::Invalid { object: object.clone(), problem })?;
        match wanted {
            WantedRevision::Newest(found) => break found.name_any(),
            WantedRevision::Raise(found, number) => {
                let patch = Patch::Merge(raise_patch(found, number, &set.spec.volume_claim_templates));
                let name = found.name_any();
                let params = PatchParams::default();
                let request = api.patch(&name, &params, &patch);
                context
                    .revisions
                    .store(call("raise the number of ControllerRevision", &name, request).await?);
                break name;
            }
            WantedRevision::Create(revision) => {
                let name = revision.name_any();
                match call("create ControllerRevision", &name, api.create(&PostParams::default(), &revision))
                    .await
                {
                    Ok(created) => context.revisions.store(created),
                    Err(error) if error.is_name_taken() && collisions < MAX_COLLISIONS => {
                        collisions += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                break name;
            }
        }
    };
    let all = context.revisions.of(&owner.uid);
    let find = |name: &str| all.iter().find(|revision| revision.name_any() == name).cloned();
    let missing = || SetError::Invalid {
        object: object.clone(),
        problem: format!("ControllerRevision {update} was deleted"),
    };
    let update = find(&update).ok_or_else(missing)?;
    let pods = context.pods.of(&owner.uid);
    let before = of_status(set, &status, &update, &pods).and_then(find);
    let before = before.or_else(|| of_pods(&all, &update, &pods));
    let before = before.and_then(|revision| Some((revision.name_any(), template_of(&revision)?)));
    let current = before.unwrap_or_else(|| (update.name_any(), set.spec.template.clone()));
    Ok(Revisions { all, update, current, collisions })
}

/// Returns the name of the revision that pods had before `update`, as the status says.
fn of_status<'a>(
    set: &CloneSet,
    status: &'a CloneSetStatus,
    update: &ControllerRevision,
    pods: &[Arc<Pod>],
) -> Option<&'a str> {
    let labels = pods.iter().filter(|pod| is_active(pod));
    let labels: Vec<&String> = labels.filter_map(|pod| pod.labels().get(keys::REVISION_HASH)).collect();
    let has = |name: &str| labels.iter().any(|label| is_same_revision(label, name));
    let (current, last) = (status.current_revision.as_deref(), status.update_revision.as_deref());
    // In a rollout, there are more pods than should have the revision.
    let surge = i32::try_from(spec_of(set, &HookOptions::default()).max_surge()).unwrap_or(i32::MAX);
    let is_for_all = status.expected_updated_replicas.saturating_add(surge) >= status.replicas
        && status.expected_updated_replicas >= set.spec.replicas;
    // The last update was one of all pods. It has ended, and the controller ended before the status said so.
    let has_ended = |last: &&str| has(last) && !current.is_some_and(has);
    let last = last.filter(|last| is_for_all && !is_same_revision(last, &update.name_any()));
    last.filter(has_ended).or(current)
}

/// Returns the newest revision that a pod has, but for `update`: the status may be lost, and a set that takes over pods has
/// none yet.
fn of_pods(
    all: &[Arc<ControllerRevision>],
    update: &ControllerRevision,
    pods: &[Arc<Pod>],
) -> Option<Arc<ControllerRevision>> {
    let labels = pods.iter().filter(|pod| is_active(pod));
    let labels: BTreeSet<&str> =
        labels.filter_map(|pod| pod.labels().get(keys::REVISION_HASH)).map(|it| short_hash(it)).collect();
    let is_before = |revision: &&Arc<ControllerRevision>| {
        let name = revision.name_any();
        labels.contains(short_hash(&name)) && !is_same_revision(&name, &update.name_any())
    };
    all.iter().filter(is_before).max_by_key(|revision| revision.revision).cloned()
}

/// Deletes old revisions that nothing uses, but as many as the set keeps.
///
/// # Errors
/// Fails if a request fails.
pub(crate) async fn delete_old(
    context: &Context,
    set: &CloneSet,
    owner: &Owner,
    revisions: &Revisions,
) -> Result<(), SetError> {
    let limit = usize::try_from(set.spec.revision_history_limit).unwrap_or_default();
    if revisions.all.len() <= limit {
        return Ok(());
    }
    let pods = context.pods.of(&owner.uid);
    let in_use = pods.iter().filter_map(|pod| pod.labels().get(keys::REVISION_HASH).map(String::as_str));
    let update = revisions.update.name_any();
    let in_use = in_use.chain([&*update, &*revisions.current.0]);
    let api: Api<ControllerRevision> = Api::namespaced(context.client.clone(), &owner.namespace);
    for revision in to_delete(&revisions.all, in_use, limit) {
        let preconditions = Preconditions { uid: revision.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let name = revision.name_any();
        match call("delete ControllerRevision", &name, api.delete(&name, &params)).await {
            Err(error) if error.code() != Some(404) => return Err(error),
            _ => context.revisions.removed(revision),
        }
    }
    Ok(())
}
