//! New pods and their claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Resource;
use kube::api::PostParams;
use kube::core::request::{self, Request};
use podward_api::CloneSet;
use podward_core::cloneset::{Creations, keys};
use serde_json::Value;

use super::MAX_CONCURRENT;
use crate::context::Context;
use crate::errors::{SetError, call};
use crate::pod::Pod;
use crate::template::{NewPod, Owner, instance_ids, new_claims, new_pod, reusable_ids};

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

/// Creates pods: one, then twice as many in each round, so that an error that all of them have is met once; when a round was
/// large, all others, but not more than [`MAX_CREATIONS`]. Returns the number of pods that were created, and the first error.
pub(super) async fn create(
    context: &Context,
    new: NewPods<'_>,
    count: Creations,
) -> (usize, Option<SetError>) {
    let NewPods { set, owner, pods, claims, .. } = new;
    let total = usize::try_from(count.current.saturating_add(count.update)).unwrap_or(usize::MAX);
    let total = total.min(MAX_CREATIONS);
    let reusable = match set.spec.scale_strategy.disable_pvc_reuse {
        true => Default::default(),
        false => reusable_ids(owner, pods.iter().map(|pod| &**pod), claims.iter().map(|claim| &**claim)),
    };
    let id = |pod: &Arc<Pod>| pod.metadata.labels.as_ref()?.get(keys::INSTANCE_ID).cloned();
    let taken = pods.iter().filter_map(id).collect();
    let ids = instance_ids(total, &reusable, &taken, || fastrand::u32(..));
    let current = usize::try_from(count.current).unwrap_or(usize::MAX);
    let mut wanted = ids.into_iter().enumerate().map(|(index, id)| (index < current, id));
    let (mut done, mut round) = (0, 1);
    // No pod is created after the first failure, or if another replica leads. Creations under way come to their end, so that
    // their pods are known.
    let failed = AtomicBool::new(false);
    let one = async |is_current, id| {
        if failed.load(Ordering::Relaxed) || context.stop.is_cancelled() {
            return None;
        }
        let _work = context.progress.begin();
        let result = create_one(context, new, is_current, id).await;
        failed.fetch_or(result.is_err(), Ordering::Relaxed);
        Some(result)
    };
    loop {
        let batch: Vec<_> = wanted.by_ref().take(round).collect();
        if batch.is_empty() {
            return (done, None);
        }
        let results: Vec<Result<(), SetError>> = futures::stream::iter(batch)
            .map(|(is_current, id)| one(is_current, id))
            .buffer_unordered(MAX_CONCURRENT)
            .filter_map(std::future::ready)
            .collect()
            .await;
        done += results.iter().filter(|result| result.is_ok()).count();
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return (done, Some(error));
        }
        round = if round < MAX_CONCURRENT { round * 2 } else { usize::MAX };
    }
}

async fn create_one(
    context: &Context,
    new: NewPods<'_>,
    is_current: bool,
    id: String,
) -> Result<(), SetError> {
    let NewPods { set, owner, claims, current, update, now, .. } = new;
    let (revision, template) = if is_current { current } else { update };
    let object = format!("{}/{}-{id}", owner.namespace, owner.name);
    let invalid = |problem| SetError::Invalid { object: format!("pod {object}"), problem };
    let claim_templates = &set.spec.volume_claim_templates;
    if !claim_templates.is_empty() {
        let selector = set.spec.selector.match_labels.clone().unwrap_or_default();
        for claim in new_claims(owner, &selector, claim_templates, &id).map_err(invalid)?.into_values() {
            let name = claim.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if claims.iter().any(|it| it.metadata.name.as_ref() == Some(&name)) {
                continue;
            }
            let request = create_request::<PersistentVolumeClaim>(&owner.namespace, &claim)
                .map_err(|error| invalid(error.to_string()))?;
            let created = context.client.request::<PersistentVolumeClaim>(request);
            match call("create PersistentVolumeClaim", &name, created).await {
                Ok(created) => context.claims.store(created),
                Err(error) if error.code() == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let pod = new_pod(&NewPod {
        set: owner,
        template,
        revision,
        id: &id,
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
