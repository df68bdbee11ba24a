//! A traffic controller of a third party, after the plain recipe: a pod that is Ready, whose gate isn't off and that isn't being
//! deleted gets traffic, and then the finalizer; any other loses its traffic, and then the finalizer.

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
    api::{Patch, PatchParams},
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
/// When a write that lost a race is tried again, unless the newer version comes first.
const RETRY: Duration = Duration::from_millis(100);

/// How soon the loop acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As soon as it sees that it should.
    #[default]
    AtOnce,
    /// So long after it has seen that it should, and still should.
    After(Duration),
    /// Not until it is told otherwise.
    Hold,
}

/// How the loop behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// How soon a pod that is out of service loses its traffic.
    pub let_go: Pace,
    /// How soon a pod that is in service gets traffic.
    pub take_in: Pace,
}

impl Behaviour {
    /// Does at once what it should.
    pub const PROMPT: Self = Self { let_go: Pace::AtOnce, take_in: Pace::AtOnce };
    /// Doesn't let go.
    pub const HOLDS: Self = Self { let_go: Pace::Hold, take_in: Pace::AtOnce };
    /// Doesn't take in.
    pub const KEEPS_OUT: Self = Self { let_go: Pace::AtOnce, take_in: Pace::Hold };
}

/// The loop. It ends when this is dropped; finalizers that it has put then stay.
#[derive(Debug)]
pub struct TrafficLoop {
    finalizer: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    api: Api<Pod>,
    finalizer: String,
    rules: watch::Sender<Rules>,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct Rules {
    towards_all: Behaviour,
    towards: BTreeMap<String, Behaviour>,
}

#[derive(Debug, Default)]
struct State {
    /// Pods that get traffic.
    routes: BTreeSet<String>,
    /// By pod: what it should be, and since when.
    wishes: BTreeMap<String, (bool, Instant)>,
}

impl TrafficLoop {
    /// Works on the pods of `api` that match the label selector `selector`, by the finalizer of `name`.
    #[must_use]
    pub fn start(api: Api<Pod>, selector: &str, name: &str) -> Self {
        let finalizer = Self::finalizer_of(name);
        let (rules, changed) = watch::channel(Rules::default());
        let shared = Arc::new(Shared {
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
            .run(Shared::reconcile, |_, _, _| Action::requeue(RETRY), shared.clone());
        let task = tokio::spawn(rounds.for_each(|round| async move {
            if let Err(error) = round {
                tracing::debug!(error = %error, "a round of the traffic loop failed and will be tried again");
            }
        }));
        Self { finalizer, shared, task }
    }

    /// The finalizer of a loop with this name.
    #[must_use]
    pub fn finalizer_of(name: &str) -> String {
        format!("{}/{name}", keys::PROT_FINALIZER_PREFIX)
    }

    /// The finalizer by which this loop holds pods.
    #[must_use]
    pub fn finalizer(&self) -> &str {
        &self.finalizer
    }

    /// From now on the loop behaves so towards all pods that it wasn't told otherwise for.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.rules.send_modify(|rules| rules.towards_all = behaviour);
    }

    /// From now on the loop behaves so towards the pod `name`.
    pub fn behave_towards(&self, name: &str, behaviour: Behaviour) {
        self.shared.rules.send_modify(|rules| {
            rules.towards.insert(name.to_owned(), behaviour);
        });
    }

    /// Whether the pod `name` gets traffic.
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

/// An error that [`Controller`] can carry.
#[derive(Debug)]
struct Failed(anyhow::Error);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Failed {}

impl Rules {
    fn of(&self, name: &str) -> Behaviour {
        self.towards.get(name).copied().unwrap_or(self.towards_all)
    }
}

impl Shared {
    async fn reconcile(pod: Arc<Pod>, shared: Arc<Shared>) -> Result<Action, Failed> {
        shared.round(&pod).await.map_err(Failed)
    }

    async fn round(&self, pod: &Pod) -> Result<Action> {
        let name = pod.name_any();
        let wanted = serves(pod);
        let is_held = pod.finalizers().contains(&self.finalizer);
        if wanted == is_held && wanted == self.state.lock().routes.contains(&name) {
            self.state.lock().wishes.remove(&name);
            return Ok(Action::await_change());
        }
        let behaviour = self.rules.borrow().of(&name);
        let pace = if wanted { behaviour.take_in } else { behaviour.let_go };
        let since = self.since(&name, wanted);
        match pace {
            Pace::Hold => return Ok(Action::await_change()),
            Pace::After(delay) if since.elapsed() < delay => {
                return Ok(Action::requeue(delay - since.elapsed()));
            }
            Pace::AtOnce | Pace::After(_) => {}
        }
        // The contract: the finalizer is there whenever there may be traffic. A backend of one's own memory answers at once.
        if wanted {
            self.state.lock().routes.insert(name.clone());
        } else {
            self.state.lock().routes.remove(&name);
        }
        if let Some(patch) = patch::set_finalizer(pod, &self.finalizer, wanted) {
            let parameters =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let written = self.api.patch(&name, &parameters, &Patch::<()>::Json(patch)).await;
            match written {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => drop(other.with_context(|| {
                    format!("set finalizer {} on pod {name} to {wanted}", self.finalizer)
                })?),
            }
        }
        Ok(Action::await_change())
    }

    fn since(&self, name: &str, wanted: bool) -> Instant {
        let mut state = self.state.lock();
        let wish = state.wishes.entry(name.to_owned()).or_insert_with(|| (wanted, Instant::now()));
        if wish.0 != wanted {
            *wish = (wanted, Instant::now());
        }
        wish.1
    }
}

fn serves(pod: &Pod) -> bool {
    let gate_is_off = pods::condition(pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::False);
    pods::is_ready(pod) && !gate_is_off && pod.metadata.deletion_timestamp.is_none()
}
