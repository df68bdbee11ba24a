//! PodTransitionRules, for the leader.
//!
//! ```text
//!  watch of rule objects ──► state ◄── watch of pods (each event, also that a pod is gone)
//!                             │  ▲
//!          checks, heard ◄────┘  └──── lane (one a namespace): reads owners, asks webhooks, decides, writes ledger and status
//!          (reconcile)                   │
//!                                        └──► pods to look at again, because what is said to them has changed
//! ```
//!
//! What is decided is the core's ([`podward_core::rules`]); this carries it out.
//!
//! # Guarantees
//! - A rule that exists when an operation begins to ask is heeded: before anything passes, the namespace's rule objects are listed by a
//!   request that began after the pod was seen asking, and all of them must be known ([`fresh`]). A watch that has not begun or has
//!   failed is never taken for "no rules".
//! - A pod in service is let through only on a grant that the API server has stored ([`lane`]).
//! - Who finds a ledger of another controller reads the pods after it before he decides ([`catch_up`]).
//! - The status of an object is written at most once a second, only when it says something else, and has less than 256 KiB.
//! - Nothing is kept of a namespace that has no rule object any more.
//! - Nothing polls: what is decided follows from events; only failed requests are tried again, ever later.

mod catch_up;
mod checks;
mod fresh;
mod lane;
mod metrics;
mod owners;
mod state;
mod states;
mod status;
#[cfg(test)]
mod tests;
mod watch;
mod webhook;
mod webhooks;
mod words;

use std::sync::Arc;

use futures::Stream;
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use parking_lot::Mutex;
use podward_core::rules::{Asking, Others};
use podward_core::{CheckResult, Checks, Operations, Plan};
use podward_runtime::watched::WatchMetrics;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cached_pod::{CachedPod, PodKey};
use crate::events::Events;
use crate::inbox::{Inbox, stream};
use crate::traces::Traces;

pub(crate) use checks::PodRules;
pub(crate) use metrics::RuleMetrics;
#[cfg(test)]
pub(crate) use webhook::Asking as WebhookAsking;
pub(crate) use webhook::{RuleId, Subject};

use fresh::Fresh;
use owners::Owners;
use state::State;
use webhooks::RuleWebhooks;

/// Clones are the same one.
#[derive(Clone)]
pub(crate) struct Rules {
    shared: Arc<Shared>,
}

/// Where it is told what happens.
pub(crate) struct Telling {
    pub(crate) metrics: RuleMetrics,
    pub(crate) watches: WatchMetrics,
    pub(crate) events: Events,
    pub(crate) traces: Traces,
}

struct Shared {
    client: Client,
    /// Who decides: another name each time that this process leads.
    me: String,
    pods: Store<CachedPod>,
    state: Mutex<State>,
    fresh: Fresh,
    owners: Owners,
    webhooks: RuleWebhooks,
    awake: Arc<Inbox<PodKey>>,
    /// Counts changes of pods, and of rule objects, for whoever waits for them.
    pods_seen: tokio::sync::watch::Sender<u64>,
    rules_seen: tokio::sync::watch::Sender<u64>,
    metrics: RuleMetrics,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Rules {
    /// Follows rule objects until `stop`. Gives the pods too that are to be looked at because what is said to them has changed.
    pub(crate) fn start(
        client: Client,
        identity: &str,
        pods: Store<CachedPod>,
        telling: Telling,
        stop: CancellationToken,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let awake = Arc::new(Inbox::default());
        let Telling { metrics, watches, events, traces } = telling;
        let calls = metrics.webhooks.clone();
        let shared = Arc::new_cyclic(|weak| Shared {
            me: format!("{identity}/{:016x}", fastrand::u64(..)),
            state: Mutex::default(),
            fresh: Fresh::default(),
            owners: Owners::new(client.clone()),
            webhooks: RuleWebhooks::new(client.clone(), weak.clone(), events, calls, traces, stop.clone()),
            client,
            pods,
            awake: awake.clone(),
            pods_seen: tokio::sync::watch::channel(0).0,
            rules_seen: tokio::sync::watch::channel(0).0,
            metrics,
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        shared.spawn(watch::follow(shared.clone(), watches));
        shared.spawn(owners::follow(shared.clone()));
        let closing = awake.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            closing.close();
        });
        let pods = futures::StreamExt::map(stream(awake), |key: PodKey| {
            ObjectRef::new(&key.name).within(&key.namespace)
        });
        (Rules { shared }, pods)
    }

    /// Waits until nothing is in flight, after `stop`.
    pub(crate) async fn stopped(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.webhooks.stopped().await;
    }

    /// The watch of pods has brought this, and the store has it.
    pub(crate) fn followed(&self, event: &watcher::Event<CachedPod>) {
        let shared = &self.shared;
        {
            let mut state = shared.state.lock();
            match event {
                watcher::Event::Apply(pod) => {
                    let stored = shared.pods.get(&ObjectRef::from_obj(pod));
                    state.saw(&stored.unwrap_or_else(|| Arc::new(pod.clone())), true);
                }
                watcher::Event::Delete(pod) => state.gone(pod),
                watcher::Event::InitDone => state.relist(&shared.pods),
                watcher::Event::Init | watcher::Event::InitApply(_) => return,
            }
        }
        shared.pods_seen.send_modify(|count| *count += 1);
    }

    /// This was stored by our own write; the watch has yet to bring it.
    pub(crate) fn wrote(&self, pod: &Arc<CachedPod>) {
        self.shared.state.lock().saw(pod, false);
    }

    /// What rules say to `pod`. Asks whether all rules are known, if that isn't sure yet; the pod is looked at again when it is.
    pub(crate) fn checks(&self, pod: &CachedPod) -> PodRules {
        checks::of(&self.shared, pod)
    }

    /// What all but rules say to what `pod` asks: hooks, as far as they are waited for in `plan`, and `outside`.
    pub(crate) fn heard(&self, pod: &CachedPod, rules: &PodRules, plan: &Plan, outside: &dyn Checks) {
        let operations = Operations::parse(pod.view().labels);
        let said = rules.askings().iter().map(|asking| {
            let others = match rules.are_known() {
                true => others(asking, &operations, plan, outside),
                false => Others::Unheard,
            };
            (asking.clone(), others)
        });
        self.shared.state.lock().heard(&pod.key(), pod.uid(), said.collect());
    }

    /// `pod` is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.shared.fresh.forget(uid);
    }
}

impl Shared {
    /// Runs `work` until it ends or the leadership does.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }
}

fn others(asking: &Asking, operations: &Operations<'_>, plan: &Plan, outside: &dyn Checks) -> Others {
    use podward_core::hooks::Phase;
    use podward_core::rules::CheckStage;

    let id = &asking.operation;
    let operation_type = operations.type_of(id).unwrap_or_default();
    let (phase, said) = match asking.stage {
        CheckStage::PreCheck => (Phase::PreCheck, outside.pre_check(id, &operation_type)),
        CheckStage::PostCheck => (Phase::PostCheck, outside.post_check(id, &operation_type)),
    };
    let is_asked = |(other, _): &(String, String)| other == id;
    let waits = plan
        .open
        .iter()
        .any(|open| open.question.phase == phase && open.question.operations.iter().any(is_asked));
    if waits || said != CheckResult::Pass { Others::Refuse } else { Others::Agree }
}
