//! The delete itself.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, core};
use podward_core::deletion::Ruling;
use podward_core::keys::{DELETE_OPERATION, Stage};
use podward_core::wish::{DeletionKind, Intent, Wish, intent};
use podward_core::{Operations, UnixNanos, may_operate};

use super::budgets::{self, seconds_between};
use super::patch::{DEADLINE, timely};
use super::step::{Deletions, Step};
use crate::cached_pod::CachedPod;
use crate::error::Error;
use crate::events::Draft;
use crate::reconcile::now;

/// How long a pod may be out of service for an eviction that is refused.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon a refused eviction is tried again, should nothing else bring the pod up.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What came of a deletion that may be carried out.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It may not be carried out yet, or there is none.
    NotDue,
    /// The pod is on its way out: there is nothing to write to it any more.
    Deleted(Draft),
    /// It was refused; to be tried again after this time.
    Refused(Duration),
    /// The pod stays: the step is to be written.
    Stays(Box<Step>),
}

impl Deletions {
    /// Deletes or evicts `pod` if it is due: wished, with its permission, and out of service.
    ///
    /// # Errors
    /// When the API server can't be asked or refuses; a delete that another write has overtaken is a conflict.
    pub(crate) async fn carry_out(&self, pod: &CachedPod) -> Result<Outcome, Error> {
        let Some(Due { wish, since, node_is_lost }) = due(pod).or_else(|| self.stranded(pod)) else {
            return Ok(Outcome::NotDue);
        };
        let owner = pod.controller();
        if let Some(owner) = owner {
            if !wish.by_workload {
                self.ledger.recount(owner).await;
            } else if let Ruling::Keep(why) = self.ledger.last_word(&self.client, pod, owner).await? {
                return Ok(Outcome::Stays(Box::new(self.cancel(pod, &why))));
            }
        }
        let result = match wish.kind {
            DeletionKind::Delete => self.delete(pod, &wish).await.map(|()| None),
            DeletionKind::Evict => self.evict(pod, &wish).await,
        };
        if let (Err(_) | Ok(Some(_)), Some(owner)) = (&result, owner) {
            self.ledger.recount(owner).await;
        }
        let Some(refusal) = result? else {
            return Ok(Outcome::Deleted(self.carried_out(pod, &wish, node_is_lost)));
        };
        if now().since(since) < PATIENCE {
            return Ok(Outcome::Refused(TRY_AGAIN));
        }
        let why = format!("the API server has refused to evict it for {} s: {refusal}", PATIENCE.as_secs());
        Ok(Outcome::Stays(Box::new(self.put_off(pod, &wish, &why))))
    }

    /// What is to be carried out because the pod's node is lost, whether or not everybody has let go of the pod.
    fn stranded(&self, pod: &CachedPod) -> Option<Due> {
        let wish = underway(pod)?;
        let is_lost = self.lost_nodes.lost_in(pod).is_some_and(|left| left.is_zero());
        is_lost.then_some(Due { since: UnixNanos(wish.requested_at), wish, node_is_lost: true })
    }

    fn carried_out(&self, pod: &CachedPod, wish: &Wish, node_is_lost: bool) -> Draft {
        self.waiting.forget(&pod.key());
        let seconds = seconds_between(wish.requested_at, now());
        self.metrics.carried_out(wish, seconds);
        let (reason, verb) = match wish.kind {
            DeletionKind::Delete => ("PodDeletion", "Deleted"),
            DeletionKind::Evict => ("PodEvicted", "Evicted"),
        };
        let mut note = format!("{verb} pod, {seconds:.1} s after {} asked for it", wish.requested_by);
        if node_is_lost {
            let node = pod.node_name().unwrap_or_default();
            let _ = write!(note, "; nobody was waited for, as node {node} has not been Ready for too long");
        }
        Draft { reason, note }
    }

    async fn delete(&self, pod: &CachedPod, wish: &Wish) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key().namespace);
        let params = DeleteParams {
            grace_period_seconds: wish.grace_period_seconds,
            preconditions: Some(core::params::Preconditions {
                uid: Some(pod.uid().to_owned()),
                resource_version: Some(pod.resource_version().to_owned()),
            }),
            ..DeleteParams::default()
        };
        let name = pod.key().name;
        match timely("delete", pod, api.delete(&name, &params)).await {
            Ok(_) | Err(Error::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Evicts the pod. Gives the API server's words if a budget is in the way.
    async fn evict(&self, pod: &CachedPod, wish: &Wish) -> Result<Option<String>, Error> {
        let key = pod.key();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        // By hand: `Api::evict` of kube 5 sends the options under a name that the API server doesn't know, so they would be lost.
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: wish.grace_period_seconds.map(i64::from),
                preconditions: Some(Preconditions {
                    uid: Some(pod.uid().to_owned()),
                    resource_version: Some(pod.resource_version().to_owned()),
                }),
                ..DeleteOptions::default()
            }),
        };
        let params = PostParams::default();
        let call = api.create_subresource("eviction", &key.name, &params, &eviction);
        let refusal = match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(core::Status { .. })) => return Ok(None),
            // 429: no room; 500: more than one budget.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 429 | 500) => status.message,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(None),
            Ok(Err(source)) => return Err(Error::api("evict", key, source)),
            Err(_) => return Err(Error::TimedOut { what: "evict", pod: key, after: DEADLINE }),
        };
        if budgets::covers(&self.client, pod).await? {
            return self.delete(pod, wish).await.map(|()| None);
        }
        Ok(Some(refusal))
    }
}

/// Whether `pod` is to be deleted or evicted now.
pub(crate) fn is_due(pod: &CachedPod) -> bool {
    due(pod).is_some()
}

/// What is to be carried out now.
struct Due {
    wish: Wish,
    /// Since when nothing was in the way of it.
    since: UnixNanos,
    node_is_lost: bool,
}

/// The wish, if it has its permission.
fn due(pod: &CachedPod) -> Option<Due> {
    let view = pod.view();
    let wish = underway(pod)?;
    let operations = Operations::parse(view.labels);
    let operation = operations.get(DELETE_OPERATION)?;
    let is_granted = operation.has(Stage::Operate) && operation.has(Stage::Operating);
    if !is_granted || !may_operate(&view) {
        return None;
    }
    let granted_at = view.labels.get(&Stage::Operate.key(DELETE_OPERATION))?.parse().unwrap_or_default();
    Some(Due { wish, since: UnixNanos(granted_at), node_is_lost: false })
}

/// The wish, if there is one that has begun and is still to be carried out.
fn underway(pod: &CachedPod) -> Option<Wish> {
    let view = pod.view();
    let wish = pod.wish().filter(|_| view.is_controlled() && !view.terminating)?;
    (intent(&pod.carried(Some(&wish))) == Intent::Underway).then_some(wish)
}
