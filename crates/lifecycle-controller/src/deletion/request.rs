//! Recording a wish: what any replica does for whoever wants a pod gone.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use podward_core::UnixNanos;
use podward_core::busy::{Claim, IdleCost};
use podward_core::deletion::is_by_workload;
use podward_core::wish::{DeletionKind, Intent, Wish, intent, raise, record};

use super::patch::{timely, write};
use super::{DeletionMetrics, Refusal, budgets, workloads};
use crate::cached_pod::{CachedPod, PodKey};
use crate::error::Error;
use crate::reconcile::now;

/// Pods change often while they come up; a request gives up after so many changes in between, and its caller asks again.
const TRIES: u32 = 6;

/// By then a workload's controller has seen a pod as it is: its watch is behind by less, unless the API server is in trouble.
const SEEN_BY_CONTROLLERS: Duration = Duration::from_secs(10);

/// Records wishes.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    metrics: DeletionMetrics,
}

impl Requests {
    pub(crate) fn new(client: Client, metrics: DeletionMetrics) -> Self {
        Requests { client, metrics }
    }

    /// Records `asked` (of which kind, user and grace period count) on `pod`, and begins the operation in the same write. Gives the
    /// pod as it is stored then. Idempotent: what stands there already is not written again.
    ///
    /// # Errors
    /// See [`Refusal`]. The pod is as it was then.
    pub(crate) async fn request(
        &self,
        pod: &PodKey,
        uid: Option<&str>,
        asked: &Wish,
    ) -> Result<Arc<CachedPod>, Refusal> {
        let mut tried = 0;
        loop {
            let result = self.try_request(pod, uid, asked).await;
            match result {
                Err(Refusal::Api(Error::Conflict { .. })) if tried < TRIES => {
                    tried += 1;
                    let base = Duration::from_millis(5).saturating_mul(1 << tried);
                    tokio::time::sleep(base.mul_f64(0.5 + fastrand::f64())).await;
                }
                Err(Refusal::Api(Error::Gone { .. })) => return Err(Refusal::NotFound(pod.clone())),
                other => {
                    if let Err(refusal) = &other {
                        self.metrics.count(asked.kind, false, refusal.outcome());
                    }
                    return other;
                }
            }
        }
    }

    async fn try_request(
        &self,
        key: &PodKey,
        uid: Option<&str>,
        asked: &Wish,
    ) -> Result<Arc<CachedPod>, Refusal> {
        let pod = self.read(key, uid).await?;
        if pod.view().terminating {
            return Ok(pod);
        }
        let wish = as_wished(&pod, asked, now());
        let present = pod.wish();
        let carried = pod.carried(present.as_ref());
        match (intent(&carried), &present) {
            (Intent::Underway | Intent::PutOff(_), Some(present)) => match present.joined_by(&wish) {
                Some(joined) => Ok(write(&self.client, &pod, &raise(&joined)).await?),
                None => Ok(pod),
            },
            (Intent::Cancelled(by), _) => Err(Refusal::NoRoom(format!(
                "the wish to delete pod {key} was taken back a moment ago ({}), which is not finished yet; try again",
                by.words()
            ))),
            _ => self.record(&pod, wish).await,
        }
    }

    async fn record(&self, pod: &CachedPod, mut wish: Wish) -> Result<Arc<CachedPod>, Refusal> {
        let view = pod.view();
        let busy = Claim::of(&view).at(now());
        if wish.by_workload
            && let Some(owner) = pod.controller()
        {
            let numbers = workloads::read(&self.client, pod, owner).await?;
            let overlooked = busy.filter(|_| numbers.has_idle && self.became_busy_a_moment_ago(pod));
            let overlooked = overlooked.map(|work| {
                format!("it is {}, since a moment ago, and others of its workload are idle", work.words())
            });
            let may_go = numbers.workload.may_go(&numbers.members, pod.uid(), wish.requested_at);
            may_go.and(overlooked.map_or(Ok(()), Err)).map_err(|why| {
                Refusal::NoRoom(format!(
                    "pod {} is not deleted: {why}; nothing was recorded, and its traffic goes on",
                    pod.key()
                ))
            })?;
        }
        // The room of a pod that is busy is for others until it is done.
        let takes_room = wish.kind == DeletionKind::Evict && busy.is_none();
        if takes_room {
            if let budgets::Taking::NoRoom { text, .. } = budgets::take(&self.client, pod).await? {
                return Err(Refusal::NoRoom(text));
            }
            wish.reserved_at = Some(now().0);
        }
        let changes = record(&pod.carried(None), wish.clone(), pod.is_chosen_by_cost());
        match write(&self.client, pod, &changes).await {
            Ok(written) => {
                self.metrics.count(wish.kind, wish.by_workload, "recorded");
                Ok(written)
            }
            // Tried again, and then the room is found to be taken already.
            Err(conflict @ Error::Conflict { .. }) => Err(conflict.into()),
            Err(error) => {
                if takes_room {
                    budgets::give_back(&self.client, pod).await;
                }
                Err(error.into())
            }
        }
    }

    /// Whether the cost that keeps idle pods before `pod` is so new that its workload's controller may have chosen without it. Not for
    /// longer: where costs decide nothing, the workload would be refused for as long as the pod is busy, with no operation to count
    /// the maximum from.
    fn became_busy_a_moment_ago(&self, pod: &CachedPod) -> bool {
        let idle = pod.cost(None).idle.and_then(IdleCost::parse);
        // A time that is far ahead is nobody's moment either.
        let age = |idle: IdleCost| Duration::from_nanos(now().0.saturating_sub(idle.since).unsigned_abs());
        idle.is_some_and(|idle| age(idle) < SEEN_BY_CONTROLLERS)
    }

    /// The pod as it is stored now, not as a cache had it.
    async fn read(&self, key: &PodKey, uid: Option<&str>) -> Result<Arc<CachedPod>, Refusal> {
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), &key.namespace);
        let nobody = CachedPod::named(key);
        let found = timely("look up", &nobody, api.get_opt(&key.name)).await?;
        let pod = found.ok_or_else(|| Refusal::NotFound(key.clone()))?;
        if let Some(expected) = uid.filter(|uid| !uid.is_empty() && *uid != pod.uid()) {
            return Err(Refusal::WrongUid {
                pod: key.clone(),
                expected: expected.to_owned(),
                actual: pod.uid().to_owned(),
            });
        }
        if !pod.view().is_controlled() {
            return Err(Refusal::NotOptedIn(key.clone()));
        }
        Ok(Arc::new(pod))
    }
}

fn as_wished(pod: &CachedPod, asked: &Wish, now: UnixNanos) -> Wish {
    let owner_kind = pod.controller().map(|owner| owner.kind.as_str());
    Wish {
        grace_period_seconds: asked.grace_period_seconds,
        by_workload: is_by_workload(&asked.requested_by, owner_kind),
        ..Wish::new(asked.kind, &asked.requested_by, now)
    }
}
