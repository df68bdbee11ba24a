//! A traffic controller of a third party, by the documented recipe. A pod that is Ready, whose gate is not False and
//! that is not being deleted gets traffic, then the finalizer. Any other pod loses its traffic, then the finalizer.

mod patch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::PatchParams,
    runtime::{
        controller::{Action, Controller},
        watcher,
    },
};
use parking_lot::Mutex;
use podward_core::{ConditionStatus, keys};
use tokio::{sync::watch, task::JoinHandle};

use crate::pods;

const FIELD_MANAGER: &str = "demo-traffic";
/// The delay after which a conflicting write is tried again, unless the newer version arrives first.
const RETRY: Duration = Duration::from_millis(100);

/// The delay of the loop's actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPace {
    /// At once.
    #[default]
    AtOnce,
    /// After this time, if the action is still due.
    After(Duration),
    /// Never, until the behaviour changes.
    Hold,
}

/// The behaviour of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficBehaviour {
    /// The delay until a pod that is out of service loses its traffic.
    pub drain: TrafficPace,
    /// The delay until a pod that is in service gets traffic.
    pub add: TrafficPace,
}

impl TrafficBehaviour {
    /// Acts at once.
    pub const PROMPT: Self = Self { drain: TrafficPace::AtOnce, add: TrafficPace::AtOnce };
    /// Does not drain pods.
    pub const NOT_DRAINED: Self = Self { drain: TrafficPace::Hold, add: TrafficPace::AtOnce };
    /// Does not add pods to traffic.
    pub const NOT_ADDED: Self = Self { drain: TrafficPace::AtOnce, add: TrafficPace::Hold };
}

/// A running traffic controller. It ends when this is dropped. Its finalizers then stay on the pods.
#[derive(Debug)]
pub struct TrafficLoop {
    finalizer: String,
    shared: Arc<TrafficLoopShared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct TrafficLoopShared {
    api: Api<Pod>,
    finalizer: String,
    rules: watch::Sender<TrafficRules>,
    state: Mutex<TrafficLoopState>,
}

#[derive(Clone, Debug, Default)]
struct TrafficRules {
    towards_all: TrafficBehaviour,
    towards: BTreeMap<String, TrafficBehaviour>,
}

#[derive(Debug, Default)]
struct TrafficLoopState {
    /// The pods that get traffic.
    routes: BTreeSet<String>,
    /// The UIDs of pods whose finalizer was removed, until the watch shows it.
    released: BTreeSet<String>,
    /// The wanted state of each pod, and the time since which it is wanted.
    wanted_states: BTreeMap<String, (bool, Instant)>,
}

impl TrafficLoop {
    /// Manages the pods of `api` that match the label selector `selector`, with the finalizer of `name`.
    #[must_use]
    pub fn start(api: Api<Pod>, selector: &str, name: &str) -> Self {
        let finalizer = Self::finalizer_of(name);
        let (rules, changed) = watch::channel(TrafficRules::default());
        let shared = Arc::new(TrafficLoopShared {
            api: api.clone(),
            finalizer: finalizer.clone(),
            rules,
            state: Mutex::default(),
        });
        let changes = futures::stream::unfold(changed, |mut changed| async move {
            changed.changed().await.ok().map(|()| ((), changed))
        });
        let rounds = Controller::new(api, watcher::Config::default().labels(selector))
            .reconcile_all_on(changes)
            .run(TrafficLoopShared::reconcile, |_, _, _| Action::requeue(RETRY), shared.clone());
        let task = tokio::spawn(rounds.for_each(|round| async move {
            if let Err(error) = round {
                tracing::debug!(error = %error, "a round of the traffic loop failed and will be tried again");
            }
        }));
        Self { finalizer, shared, task }
    }

    /// Returns the finalizer of a loop with this name.
    #[must_use]
    pub fn finalizer_of(name: &str) -> String {
        format!("{}/{name}", keys::PROT_FINALIZER_PREFIX)
    }

    /// Returns the finalizer by which this loop holds pods.
    #[must_use]
    pub fn finalizer(&self) -> &str {
        &self.finalizer
    }

    /// Sets the behaviour for all pods that have no behaviour of their own.
    pub fn set_behaviour(&self, behaviour: TrafficBehaviour) {
        self.shared.rules.send_modify(|rules| rules.towards_all = behaviour);
    }

    /// Sets the behaviour for the pod `name`.
    pub fn set_behaviour_for(&self, name: &str, behaviour: TrafficBehaviour) {
        self.shared.rules.send_modify(|rules| {
            rules.towards.insert(name.to_owned(), behaviour);
        });
    }

    /// Returns whether the pod `name` gets traffic.
    #[must_use]
    pub fn sends_traffic_to(&self, name: &str) -> bool {
        self.shared.state.lock().routes.contains(name)
    }
}

impl Drop for TrafficLoop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An error type for [`Controller`], which requires [`std::error::Error`].
#[derive(Debug)]
struct TrafficLoopError(anyhow::Error);

impl std::fmt::Display for TrafficLoopError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for TrafficLoopError {}

impl TrafficRules {
    fn of(&self, name: &str) -> TrafficBehaviour {
        self.towards.get(name).copied().unwrap_or(self.towards_all)
    }
}

impl TrafficLoopShared {
    async fn reconcile(pod: Arc<Pod>, shared: Arc<TrafficLoopShared>) -> Result<Action, TrafficLoopError> {
        shared.round(&pod).await.map_err(TrafficLoopError)
    }

    async fn round(&self, pod: &Pod) -> Result<Action> {
        let name = pod.name_any();
        let wanted = serves(pod);
        let is_held = pod.finalizers().contains(&self.finalizer);
        if self.awaits_own_removal(pod, is_held) {
            return Ok(Action::await_change());
        }
        if wanted == is_held && wanted == self.state.lock().routes.contains(&name) {
            self.state.lock().wanted_states.remove(&name);
            return Ok(Action::await_change());
        }
        let behaviour = self.rules.borrow().of(&name);
        let pace = if wanted { behaviour.add } else { behaviour.drain };
        let since = self.since(&name, wanted);
        match pace {
            TrafficPace::Hold => return Ok(Action::await_change()),
            TrafficPace::After(delay) if since.elapsed() < delay => {
                return Ok(Action::requeue(delay - since.elapsed()));
            }
            TrafficPace::AtOnce | TrafficPace::After(_) => {}
        }
        // The finalizer must be present whenever there may be traffic. This consumer's routes are in memory and
        // change at once.
        if wanted {
            self.state.lock().routes.insert(name.clone());
        } else {
            self.state.lock().routes.remove(&name);
        }
        if let Some(patch) = patch::set_finalizer(pod, &self.finalizer, wanted) {
            let parameters =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let written = self.api.patch(&name, &parameters, &patch).await;
            match written {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => drop(other.with_context(|| {
                    format!("set finalizer {} on pod {name} to {wanted}", self.finalizer)
                })?),
            }
            if !wanted {
                self.state.lock().released.extend(pod.uid());
            }
        }
        Ok(Action::await_change())
    }

    /// Returns whether `pod` is older than the removal of the finalizer by this loop. `is_held`: it has the finalizer.
    fn awaits_own_removal(&self, pod: &Pod, is_held: bool) -> bool {
        let uid = pod.uid().unwrap_or_default();
        let released = &mut self.state.lock().released;
        if !is_held {
            released.remove(&uid);
        }
        released.contains(&uid)
    }

    fn since(&self, name: &str, wanted: bool) -> Instant {
        let mut state = self.state.lock();
        let entry = state.wanted_states.entry(name.to_owned()).or_insert_with(|| (wanted, Instant::now()));
        if entry.0 != wanted {
            *entry = (wanted, Instant::now());
        }
        entry.1
    }
}

fn serves(pod: &Pod) -> bool {
    let gate_is_off = pods::condition(pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::False);
    pods::is_ready(pod) && !gate_is_off && pod.metadata.deletion_timestamp.is_none()
}
