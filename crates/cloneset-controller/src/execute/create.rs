//! New pods and their claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{PostParams, Preconditions};
use kube::core::request::{self, Request};
use kube::{Api, Resource, ResourceExt};
use podward_api::CloneSet;
use podward_core::cloneset::{Creations, keys};
use serde_json::Value;

use super::MAX_CONCURRENT;
use super::identities::identities;
use super::taken_name;
use crate::claims::taken_away;
use crate::context::Context;
use crate::delete::delete;
use crate::errors::{SetError, call, first_problem};
use crate::observe::is_active;
use crate::pod::Pod;
use crate::template::{KeptIds, NewPod, Owner, id, kept_ids, new_claims, new_pod};

/// The most pods that are created by one plan, so that a plan does not last for long. The next one creates the others, if they
/// are still missing.
const MAX_CREATIONS: usize = 500;

/// What new pods are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewPods<'a> {
    pub(super) set: &'a CloneSet,
    pub(super) owner: &'a Owner,
    /// All pods of the set, those that end too.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) claims: &'a [Arc<PersistentVolumeClaim>],
    /// The names and templates of the old and the new revision.
    pub(super) current: (&'a str, &'a Value),
    pub(super) update: (&'a str, &'a Value),
    pub(super) now: Timestamp,
}

/// What came of creations.
#[derive(Debug, Default)]
pub(super) struct Created {
    /// The number of pods that were created.
    pub(super) count: usize,
    /// The number of pods that were not created, because pods of others have their names. Another plan finds other identities.
    pub(super) taken: usize,
    /// The number of ended pods that were deleted, so that others get their identities.
    pub(super) deleted: usize,
    /// The first error.
    pub(super) error: Option<SetError>,
    /// True if another writer has overtaken any of that, also if the first error is another one.
    pub(super) overtaken: bool,
    /// What pods wait for that are not created yet.
    pub(super) waits: Option<String>,
    /// The time after which names that pods of others have are tried again, if pods wait. No event says that one is
    /// free.
    pub(super) retry: Option<Duration>,
}

impl Created {
    /// Adds what came of creations. True means that the pod was created, and false that its name was taken.
    fn add(&mut self, results: Vec<Result<bool, SetError>>) {
        self.count += results.iter().filter(|result| matches!(result, Ok(true))).count();
        self.taken += results.iter().filter(|result| matches!(result, Ok(false))).count();
        self.overtaken |= results.iter().filter_map(|it| it.as_ref().err()).any(SetError::is_overtaken);
        self.error = results.into_iter().map(Result::err).fold(None, first_problem);
    }
}

/// Creates pods, but not more than [`MAX_CREATIONS`]. Those that get the claims of pods that end wait until these are gone.
/// Nor does a pod wait for one with a finalizer of `held_by`: it gets new claims.
pub(super) async fn create(
    context: &Context,
    new: NewPods<'_>,
    held_by: &BTreeSet<String>,
    count: Creations,
) -> Created {
    let total = usize::try_from(count.current.saturating_add(count.update)).unwrap_or(usize::MAX);
    if total == 0 {
        return Created::default();
    }
    let NewPods { set, owner, pods, claims, .. } = new;
    let claims = claims.iter().map(|claim| &**claim);
    let pods = pods.iter().map(|pod| &**pod);
    let mut kept = KeptIds::default();
    if !set.spec.scale_strategy.disable_pvc_reuse && !new.claims.is_empty() {
        let (active, ending): (Vec<_>, Vec<_>) = pods.clone().partition(|pod| is_active(pod));
        kept = kept_ids(owner, active, ending, claims.clone());
    }
    if !kept.free.is_empty() {
        let taken_away = taken_away(context, owner);
        kept.free.retain(|id| !taken_away.contains(id));
    }
    let now = Instant::now();
    context.remember(&owner.uid, |memory| memory.foreign_names.remove_from(&mut kept.free, now));
    // Nobody tells the owner of the finalizer that it should remove it, so the pod may not end for long.
    kept.occupied.retain(|pod| !pod.finalizers().iter().any(|finalizer| held_by.contains(finalizer)));
    let labels = pods.map(ResourceExt::labels).chain(claims.map(ResourceExt::labels));
    let taken: BTreeSet<String> = labels.filter_map(|labels| id(labels).map(str::to_owned)).collect();
    let own = context.remember(&owner.uid, |memory| memory.own_deletions.clone());
    let total = total.min(MAX_CREATIONS.saturating_add(kept.occupied.len()));
    let mut found = identities(total, kept, &own, &taken, || fastrand::u32(..));
    found.ids.truncate(MAX_CREATIONS);
    let (waits, mut deleted, mut failed, mut overtaken) = (found.waits(), 0, None, false);
    for pod in found.ended {
        if context.stop.is_cancelled() {
            break;
        }
        let _work = context.progress.begin();
        match delete_ended(context, set, owner, pod).await {
            Ok(()) => deleted += 1,
            Err(error) => {
                overtaken |= error.is_overtaken();
                failed = first_problem(failed, Some(error));
            }
        }
    }
    let retry = waits
        .as_ref()
        .and_then(|_| context.remember(&owner.uid, |memory| memory.foreign_names.next_retry(now)));
    let current = usize::try_from(count.current).unwrap_or(usize::MAX);
    let created = create_all(context, new, current, found.ids).await;
    overtaken |= created.overtaken;
    Created { deleted, error: first_problem(created.error, failed), overtaken, waits, retry, ..created }
}

/// Deletes a pod that has ended. Its claims stay.
async fn delete_ended(context: &Context, set: &CloneSet, owner: &Owner, pod: &Pod) -> Result<(), SetError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &owner.namespace);
    // A pod that has ended does not start again.
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let name = pod.name_any();
    delete(&api, &context.pods, pod, ("delete the ended pod", &name), preconditions).await?;
    let note = format!("deleted pod {name}, which had ended: another one gets its PersistentVolumeClaims");
    context.events.normal_about(set.object_ref(&()), "SuccessfulDelete", note);
    Ok(())
}

/// Creates pods with these identities, the first `current` ones with the old revision: one, then twice as many in each
/// round, so that an error that all of them have is met once; when a round was large, all others. Returns the number of pods that
/// were created, that of names that were taken, and the first error.
async fn create_all(context: &Context, new: NewPods<'_>, current: usize, ids: Vec<String>) -> Created {
    let mut wanted = ids.into_iter().enumerate().map(|(index, id)| (index < current, id));
    let (mut created, mut round) = (Created::default(), 1);
    // No pod is created after the first failure, or if another replica leads. Creations under way come to their end, so that
    // their pods are known.
    let failed = AtomicBool::new(false);
    let one = async |is_current, id: String| {
        if failed.load(Ordering::Relaxed) || context.stop.is_cancelled() {
            return None;
        }
        let _work = context.progress.begin();
        let result = create_one(context, new, is_current, &id).await;
        failed.fetch_or(result.is_err(), Ordering::Relaxed);
        Some(result)
    };
    loop {
        let batch: Vec<_> = wanted.by_ref().take(round).collect();
        if batch.is_empty() {
            return created;
        }
        let results: Vec<Result<bool, SetError>> = futures::stream::iter(batch)
            .map(|(is_current, id)| one(is_current, id))
            .buffer_unordered(MAX_CONCURRENT)
            .filter_map(std::future::ready)
            .collect()
            .await;
        created.add(results);
        if created.error.is_some() {
            return created;
        }
        round = if round < MAX_CONCURRENT { round * 2 } else { usize::MAX };
    }
}

/// Creates a pod with this identity. Returns false if another pod has its name: that is remembered.
async fn create_one(
    context: &Context,
    new: NewPods<'_>,
    is_current: bool,
    id: &str,
) -> Result<bool, SetError> {
    let Err(error) = create_with(context, new, is_current, id).await else { return Ok(true) };
    if !error.is_name_taken() {
        return Err(error);
    }
    let NewPods { set, owner, .. } = new;
    let name = format!("{}-{id}", owner.name);
    let Some(holder) = taken_name::holder(context, owner, &name).await? else { return Err(error) };
    if taken_name::is_own(owner, &holder, id) {
        context.pods.store(holder);
        return Ok(true);
    }
    taken_name::report(context, set, &holder);
    context.remember(&owner.uid, |memory| memory.foreign_names.add(id, Instant::now()));
    Ok(false)
}

/// Creates a pod with this identity, and its claims.
async fn create_with(
    context: &Context,
    new: NewPods<'_>,
    is_current: bool,
    id: &str,
) -> Result<(), SetError> {
    let NewPods { set, owner, claims, current, update, now, .. } = new;
    let (revision, template) = if is_current { current } else { update };
    let object = format!("{}/{}-{id}", owner.namespace, owner.name);
    let invalid = |problem| SetError::Invalid { object: format!("pod {object}"), problem };
    let claim_templates = &set.spec.volume_claim_templates;
    if !claim_templates.is_empty() {
        let selector = set.spec.selector.match_labels.clone().unwrap_or_default();
        for claim in new_claims(owner, &selector, claim_templates, id).map_err(invalid)?.into_values() {
            let name = claim.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if claims.iter().any(|it| it.metadata.name.as_ref() == Some(&name)) {
                continue;
            }
            let request = create_request::<PersistentVolumeClaim>(&owner.namespace, &claim)
                .map_err(|error| invalid(error.to_string()))?;
            let created = context.client.request::<PersistentVolumeClaim>(request);
            match call("create PersistentVolumeClaim", &name, created).await {
                Ok(created) => context.claims.store(created),
                Err(error) if error.is_name_taken() => {}
                Err(error) => return Err(error),
            }
        }
    }
    let pod = new_pod(&NewPod {
        set: owner,
        template,
        revision,
        id,
        claim_templates,
        readiness_gates: &[keys::POD_READY],
        now,
    });
    let pod = pod.map_err(invalid)?;
    let request =
        create_request::<Pod>(&owner.namespace, &pod).map_err(|error| invalid(error.to_string()))?;
    let created: Pod = call("create pod", &object, context.client.request(request)).await?;
    context.pods.store(created);
    Ok(())
}

/// Returns the request that creates an object from JSON, so that fields that this program does not know are not lost.
fn create_request<K: Resource<DynamicType = ()>>(
    namespace: &str,
    object: &Value,
) -> Result<http::Request<Vec<u8>>, request::Error> {
    let body = serde_json::to_vec(object).map_err(request::Error::SerializeBody)?;
    Request::new(K::url_path(&(), Some(namespace))).create(&PostParams::default(), body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The creation that was overtaken is repeated soon.
    #[test]
    fn a_creation_that_was_overtaken_counts_beside_one_that_was_refused() {
        let failed = |code: u16| {
            let status = json!({"status": "Failure", "code": code, "message": "", "reason": "Refused"});
            let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
            Err(SetError::Api { what: "create pod", object: "shop/web-a".to_owned(), source })
        };
        for codes in [[403, 409], [409, 403]] {
            let mut created = Created::default();
            created.add(codes.map(failed).into());
            assert_eq!(created.error.and_then(|error| error.code()), Some(403));
            assert!(created.overtaken, "{codes:?}");
        }
        let mut created = Created::default();
        created.add(vec![Ok(true), Ok(false), failed(403)]);
        assert_eq!((created.count, created.taken, created.overtaken), (1, 1, false));
    }
}
