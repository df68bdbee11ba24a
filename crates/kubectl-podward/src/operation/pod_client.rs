//! Reads and writes of one pod.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, ResourceExt};
use podward_core::Pod;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_runtime::retry::{self, BackoffBuilder, ExponentialBuilder};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::api::{is_conflict, is_denied_watch, is_transient, with_timeout};
use crate::object_target::pod_name;
use crate::parsed::parsed;
use crate::terminal::tell;

use super::begun::Begun;
use super::progress::{Goal, Progress, SamePod, Waited};

/// The field manager of writes.
const MANAGER: &str = "kubectl-podward";
/// A write is tried as often as the pod changes in between.
const ATTEMPTS: usize = 10;
/// Requests that fail for a reason that passes are repeated for this time, and at most that often. Tests do not wait.
const PATIENCE: Duration = Duration::from_secs(60);
const REPEATS: ExponentialBuilder =
    retry::jittered(milliseconds(250), milliseconds(5_000)).with_max_times(20);

const fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(if cfg!(test) { number / 250 } else { number })
}

/// The pod of a command.
#[derive(Debug, Args)]
pub(crate) struct PodPlace {
    /// The name of the pod, or pod/NAME
    #[arg(value_name = "POD", value_parser = pod_name)]
    pub(crate) pod: String,
    /// Its namespace [default: the namespace of the kubeconfig's context]
    #[arg(long, short)]
    pub(crate) namespace: Option<String>,
}

/// A pod that is read and written.
pub(crate) struct PodClient {
    api: Api<DynamicObject>,
    namespace: String,
    name: String,
    repeats: Repeats,
}

/// Which requests are repeated if they fail for a reason that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    Nothing,
    /// A write, and the reads after it.
    Writes,
    All,
}

impl PodClient {
    pub(crate) fn new(client: Client, place: &PodPlace) -> Self {
        let kind = ApiResource::erase::<ApiPod>(&());
        let namespace = place.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let api = Api::namespaced_with(client, &namespace, &kind);
        Self { api, namespace, name: place.pod.clone(), repeats: Repeats::Writes }
    }

    /// Repeats reads as well from now on, because something has begun that has to be ended.
    pub(crate) fn insist(&mut self) {
        self.repeats = Repeats::All;
    }

    /// Repeats nothing from now on: what is written must not reach a pod that replaces this one.
    pub(crate) fn once(mut self) -> Self {
        self.repeats = Repeats::Nothing;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `NAMESPACE/NAME`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Writes what `change` returns for the pod's metadata, unless that is `None`. The write applies only to the version
    /// that `change` has seen. Its second parameter is true if an earlier write failed that may have been done all the same.
    ///
    /// A write that fails for a reason that passes is repeated for a minute, and the standard error says so. A read before
    /// the first write is repeated only after [`insist`](Self::insist), and nothing is after [`once`](Self::once).
    ///
    /// # Errors
    /// When the pod cannot be read or written, has not opted in, or `change` fails.
    pub(crate) async fn write(&self, change: impl Fn(&Pod, bool) -> Result<Option<Value>>) -> Result<Pod> {
        let begun = Instant::now();
        let mut delays = REPEATS.build();
        let (mut conflicts, mut unsure, mut told) = (0, false, String::new());
        loop {
            let error = match with_timeout(self.api.get(&self.name)).await {
                Ok(found) => {
                    let Some(patch) = self.patch(&found, |pod| change(pod, unsure))? else {
                        return parsed(&found);
                    };
                    match self.apply(&patch).await {
                        Ok(written) => return parsed(&written),
                        Err(error) if is_conflict(&error) => {
                            conflicts += 1;
                            if conflicts < ATTEMPTS {
                                continue;
                            }
                            return Err(error).with_context(|| {
                                format!("pod {} changes all the time: try again", self.full_name())
                            });
                        }
                        Err(error) => {
                            unsure |= is_transient(&error);
                            error.context(format!("write pod {}", self.full_name()))
                        }
                    }
                }
                Err(error) => error.context(format!("read pod {}", self.full_name())),
            };
            let repeats = match self.repeats {
                Repeats::Nothing => false,
                Repeats::Writes => unsure,
                Repeats::All => true,
            };
            let is_repeated = repeats && is_transient(&error) && begun.elapsed() < PATIENCE;
            let Some(delay) = delays.next().filter(|_| is_repeated) else { return Err(error) };
            let text = format!("{error:#}; it is tried again");
            if text != told {
                tell(&text);
                told = text;
            }
            sleep(delay).await;
        }
    }

    /// Returns the patch with what `change` returns for the pod, or `None` if that is `None`.
    fn patch(
        &self,
        found: &DynamicObject,
        change: impl FnOnce(&Pod) -> Result<Option<Value>>,
    ) -> Result<Option<Patch<Value>>> {
        let pod: Pod = parsed(found)?;
        ensure!(
            pod.view().is_controlled(),
            "pod {} has not opted in: its template needs the label {CONTROL_LABEL}={CONTROL_VALUE}",
            self.full_name()
        );
        let Some(mut metadata) = change(&pod)? else { return Ok(None) };
        metadata["uid"] = json!(found.uid());
        metadata["resourceVersion"] = json!(found.resource_version());
        Ok(Some(Patch::Merge(json!({"metadata": metadata}))))
    }

    async fn apply(&self, patch: &Patch<Value>) -> Result<DynamicObject> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        with_timeout(self.api.patch(&self.name, &params, patch)).await
    }

    /// Returns the pod.
    ///
    /// # Errors
    /// When the pod cannot be read.
    pub(crate) async fn read(&self) -> Result<Pod> {
        let found = with_timeout(self.api.get(&self.name)).await;
        parsed(&found.with_context(|| format!("read pod {}", self.full_name()))?)
    }

    /// Returns the states of the pod from now on: `None` while it does not exist. A watch that fails begins again, and
    /// says so on the standard error.
    ///
    /// # Errors
    /// The last item is an error if the API server denies the watch.
    pub(crate) fn states(&self) -> impl Stream<Item = Result<Option<Pod>>> {
        let name = self.full_name();
        watch_object(self.api.clone(), &self.name).default_backoff().filter_map(move |state| {
            let state = match state {
                Ok(object) => Some(object.as_ref().map(parsed).transpose()),
                Err(error) if is_denied_watch(&error) => {
                    Some(Err(error).with_context(|| format!("watch pod {name}")))
                }
                Err(error) => {
                    tell(&format!("the watch of pod {name} failed, and begins again: {error}"));
                    None
                }
            };
            std::future::ready(state)
        })
    }

    /// Waits until the pod has reached `goal`, and tells on the standard error what it waits for. A pod that replaces the
    /// first one is another pod. `begun` is the operation that the wait is about, if it is about one that was seen before.
    ///
    /// # Errors
    /// When `timeout` passes, the pod is gone, `begun` has ended, or the API server denies the watch.
    pub(crate) async fn wait(&self, goal: &Goal, begun: Option<&Begun>, timeout: Duration) -> Result<Waited> {
        let mut states = pin!(self.states());
        let mut same = SamePod::new(begun.map(Begun::uid));
        let mut progress = Progress::default();
        let waiting = async {
            while let Some(state) = states.try_next().await? {
                let state = state.filter(|pod| same.is(pod));
                if let Some((begun, pod)) = begun.zip(state.as_ref()) {
                    begun.is_on(pod, &self.full_name())?;
                }
                if let Some(reached) = goal.reached(state.as_ref(), &self.full_name())? {
                    return Ok(reached);
                }
                if let Some(pod) = &state {
                    progress.tell(&self.full_name(), pod);
                }
            }
            Err(anyhow!("the watch of pod {} has ended", self.full_name()))
        };
        match tokio::time::timeout(timeout, waiting).await {
            Ok(reached) => reached,
            Err(_) => bail!(
                "pod {} was not {goal} within {} s: kubectl podward why {} -n {}",
                self.full_name(),
                timeout.as_secs(),
                self.name,
                self.namespace
            ),
        }
    }
}
