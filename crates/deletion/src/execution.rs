//! Executes deletions: deletes or evicts pods.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, core};
use podward_core::deletion::Ruling;
use podward_core::deletion::request::{DeletionIntent, DeletionKind, DeletionRequest, intent};
use podward_core::keys::{DELETE_OPERATION, Stage};
use podward_core::{Operations, UnixNanos, may_operate};

use podward_kube_util::{ApiError, CachedPod, EventDraft, now, pod_call};

use crate::deletions::Deletions;
use crate::requesters::{REQUESTER_RETRY_DELAY, RequesterCheck};
use crate::step::DeletionStep;

/// The time for which a pod stays out of service while the API server refuses its eviction.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which a refused eviction is tried again if nothing else happens to the pod.
const EVICTION_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The result of [`Deletions::execute`].
#[derive(Debug)]
pub enum DeletionOutcome {
    /// The pod has no deletion request, or the deletion has no permission yet.
    NotDue,
    /// The pod is being deleted. Nothing is written to it any more.
    Deleted(EventDraft),
    /// The API server refused the eviction, or did not answer about the rights of the requester. Try again after this
    /// time.
    Refused(Duration),
    /// The pod stays. Write the step.
    Stays(Box<DeletionStep>),
}

impl Deletions {
    /// Deletes or evicts `pod` if it is due: the deletion is requested and has its permission, and the pod is out of
    /// service.
    ///
    /// # Errors
    /// Fails if a request to the API server fails. If the pod was changed in between, the error is a conflict.
    pub async fn execute(&self, pod: &CachedPod) -> Result<DeletionOutcome, ApiError> {
        let Some(DueDeletion { request, since, node_is_lost }) = due(pod).or_else(|| self.on_lost_node(pod))
        else {
            return Ok(DeletionOutcome::NotDue);
        };
        match self.requesters.check(pod, &request).await {
            RequesterCheck::MayDelete => {}
            RequesterCheck::MayNotDelete(why) => {
                return Ok(DeletionOutcome::Stays(Box::new(self.cancel(pod, &why))));
            }
            RequesterCheck::Unknown => return Ok(DeletionOutcome::Refused(REQUESTER_RETRY_DELAY)),
        }
        let owner = pod.controller();
        if let Some(owner) = owner {
            if !request.by_workload {
                self.replica_counts.recount(owner).await;
            } else if let Ruling::Keep(why) =
                self.replica_counts.final_ruling(&self.client, pod, owner).await?
            {
                return Ok(DeletionOutcome::Stays(Box::new(self.withdraw(pod, &request, &why))));
            }
        }
        if let Some(why) = self.denied_now(pod, &request).await? {
            return Ok(DeletionOutcome::Stays(Box::new(self.postpone(pod, &request, &why))));
        }
        if let (Some(owner), Some(state)) = (owner, request.joint)
            && let Some(step) = self.wait_for_others(pod, &request, owner, state).await?
        {
            return Ok(DeletionOutcome::Stays(Box::new(step)));
        }
        let is_eviction = request.kind == DeletionKind::Evict && !self.may_delete_instead(pod).await?;
        let result = match is_eviction {
            false => self.delete(pod, &request).await.map(|()| None),
            true => self.evict(pod, &request).await,
        };
        // A conflict mostly means that the controller of the workload has deleted the pod, which the count allows too.
        let is_counted = result.as_ref().map_or_else(ApiError::is_conflict, Option::is_none);
        if let Some(owner) = owner.filter(|_| !is_counted) {
            self.replica_counts.recount(owner).await;
        }
        let Some(refusal) = result? else {
            return Ok(DeletionOutcome::Deleted(self.executed(pod, &request, node_is_lost)));
        };
        if now().since(since) < EVICTION_TIMEOUT {
            return Ok(DeletionOutcome::Refused(EVICTION_RETRY_DELAY));
        }
        let why =
            format!("the API server has refused to evict it for {} s: {refusal}", EVICTION_TIMEOUT.as_secs());
        Ok(DeletionOutcome::Stays(Box::new(self.postpone(pod, &request, &why))))
    }

    /// Returns the deletion to execute because the pod's node is lost, even if consumers still use the pod.
    fn on_lost_node(&self, pod: &CachedPod) -> Option<DueDeletion> {
        let request = request_underway(pod)?;
        let is_lost = self.lost_nodes.lost_in(pod).is_some_and(|left| left.is_zero());
        is_lost.then_some(DueDeletion { since: UnixNanos(request.requested_at), request, node_is_lost: true })
    }

    fn executed(&self, pod: &CachedPod, request: &DeletionRequest, node_is_lost: bool) -> EventDraft {
        self.forget_wait(pod);
        let seconds = seconds_between(request.requested_at, now());
        self.metrics.executed(request, seconds);
        let (reason, verb) = match request.kind {
            DeletionKind::Delete => ("PodDeletion", "Deleted"),
            DeletionKind::Evict => ("PodEvicted", "Evicted"),
        };
        let mut note = format!("{verb} pod, {seconds:.1} s after {} requested it", request.requested_by);
        if node_is_lost {
            let node = pod.node_name().unwrap_or_default();
            let _ = write!(
                note,
                "; no consumer was waited for, because node {node} has not been Ready for too long"
            );
        }
        EventDraft { reason, note }
    }

    async fn delete(&self, pod: &CachedPod, request: &DeletionRequest) -> Result<(), ApiError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key().namespace);
        let params = DeleteParams {
            grace_period_seconds: request.grace_period_seconds,
            preconditions: Some(core::params::Preconditions {
                uid: Some(pod.uid().to_owned()),
                resource_version: Some(pod.resource_version().to_owned()),
            }),
            ..DeleteParams::default()
        };
        let name = pod.key().name;
        match pod_call("delete", &pod.key(), api.delete(&name, &params)).await {
            Ok(_) | Err(ApiError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns true if a delete of `pod` is the same as its eviction, except for the condition `DisruptionTarget`: no budget
    /// selects it. A delete is one write for the API server instead of two and a list of the budgets. A Job counts its
    /// failed pods by that condition (`podFailurePolicy`).
    async fn may_delete_instead(&self, pod: &CachedPod) -> Result<bool, ApiError> {
        let is_of_job = pod.controller().is_some_and(|owner| owner.kind == "Job");
        Ok(!is_of_job && !self.budgets.select(pod).await?)
    }

    /// Evicts the pod. Returns the text of the API server if a budget does not allow the eviction.
    async fn evict(&self, pod: &CachedPod, request: &DeletionRequest) -> Result<Option<String>, ApiError> {
        let key = pod.key();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        // Not `Api::evict`: kube 5 sends the options in a field that the API server does not know, so they would be
        // lost.
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: request.grace_period_seconds.map(i64::from),
                preconditions: Some(Preconditions {
                    uid: Some(pod.uid().to_owned()),
                    resource_version: Some(pod.resource_version().to_owned()),
                }),
                ..DeleteOptions::default()
            }),
        };
        let params = PostParams::default();
        let call = api.create_subresource("eviction", &key.name, &params, &eviction);
        let refusal = match pod_call("evict", &key, call).await {
            Ok(core::Status { .. }) | Err(ApiError::Gone { .. }) => return Ok(None),
            // 429: the budget has no room. 500: more than one budget selects the pod.
            Err(ApiError::Api { ref source, .. })
                if let kube::Error::Api(status) = &**source
                    && matches!(status.code, 429 | 500) =>
            {
                status.message.clone()
            }
            Err(error) => return Err(error),
        };
        if self.budgets.allow_direct_delete(pod).await? {
            return self.delete(pod, request).await.map(|()| None);
        }
        Ok(Some(refusal))
    }
}

/// Returns true if `pod` has its permission to be deleted or evicted.
pub fn is_due(pod: &CachedPod) -> bool {
    due(pod).is_some()
}

/// A deletion to execute now.
struct DueDeletion {
    request: DeletionRequest,
    /// The time since which the deletion may be executed.
    since: UnixNanos,
    node_is_lost: bool,
}

/// Returns the requested deletion if it has its permission.
fn due(pod: &CachedPod) -> Option<DueDeletion> {
    let view = pod.view();
    let request = request_underway(pod)?;
    let operations = Operations::parse(view.labels);
    let operation = operations.get(DELETE_OPERATION)?;
    let is_granted = operation.has(Stage::Operate) && operation.has(Stage::Operating);
    if !is_granted || !may_operate(&view) {
        return None;
    }
    let granted_at = view.labels.get(&Stage::Operate.key(DELETE_OPERATION))?.parse().unwrap_or_default();
    Some(DueDeletion { request, since: UnixNanos(granted_at), node_is_lost: false })
}

/// Returns the deletion request if its operation has begun and the pod is not terminating.
fn request_underway(pod: &CachedPod) -> Option<DeletionRequest> {
    let view = pod.view();
    let request = pod.deletion_request().filter(|_| view.is_controlled() && !view.terminating)?;
    (intent(&pod.carried(Some(&request))) == DeletionIntent::Underway).then_some(request)
}

/// Returns the seconds from `from` to `to`, both in nanoseconds.
fn seconds_between(from: i64, to: UnixNanos) -> f64 {
    to.0.saturating_sub(from).max(0) as f64 / 1e9
}
