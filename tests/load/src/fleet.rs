//! Many simulated pods, and one operator for all of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_core::ConditionStatus;
use podward_core::keys::{AVAILABLE_CONDITIONS, CONTROL_LABEL, SERVICE_READY_GATE, Stage};
use podward_support::{PodFeedEvent, WatchTask, observe, pods};
use serde_json::json;
use tokio::sync::watch;

use crate::times::Times;

/// The label selector of the pods that are opted in.
pub(crate) const OPTED_IN: &str = "kusionstack.io/control=true";
/// The label selector of the pods of a Deployment that are not.
pub(crate) const BYSTANDERS: &str = "app=bystander";
/// The Deployment of the pods that are opted in, and their label `app`.
pub(crate) const MEMBER: &str = "member";
/// The Deployment of those that are not, and their label `app`.
pub(crate) const BYSTANDER: &str = "bystander";
const ID: &str = "load";
const TYPE: &str = "update";
/// The number of concurrent writes of the operator.
pub(crate) const MAX_CONCURRENT: usize = 50;
/// Longer than the time after which the controller reports a waiting pod in its condition (5 s).
const QUIET: Duration = Duration::from_secs(8);
/// 10,000 pods are made in 9 minutes on two cores.
const DEADLINE: Duration = Duration::from_secs(1200);

/// The number of pods that a simulated node has room for.
const PODS_OF_NODE: usize = 1000;

/// Returns the number of simulated nodes that have room for `pods`.
pub(crate) fn nodes_for(pods: usize) -> usize {
    pods.div_ceil(PODS_OF_NODE) + 1
}

/// The progress of a pod.
#[derive(Clone, Copy, Default)]
struct PodProgress {
    pre_checked: bool,
    operate: bool,
    available: bool,
    /// How long the pod was out of service until it had `operate`.
    out: TimeOut,
}

/// The time from the change of a pod's gate to False until an end.
#[derive(Clone, Copy, Default)]
pub(crate) struct TimeOut {
    since: Option<Instant>,
    until_end: Option<Duration>,
}

impl TimeOut {
    /// Observes a version of the pod. `has_ended` is whether the end has come.
    pub(crate) fn observe(&mut self, pod: &Pod, has_ended: bool) {
        let is_out = pods::condition(pod, SERVICE_READY_GATE) == Some(ConditionStatus::False);
        self.since = is_out.then(|| self.since.unwrap_or_else(Instant::now));
        let until_end = self.until_end.or_else(|| Some(self.since?.elapsed()));
        self.until_end = until_end.filter(|_| has_ended);
    }

    /// Returns the time. `None` if the end has not come, or if the gate was not False.
    pub(crate) fn until_end(&self) -> Option<Duration> {
        self.until_end
    }
}

type ProgressByPod = HashMap<String, PodProgress>;

pub(crate) struct PodFleet {
    client: Client,
    namespace: String,
    pods: Api<Pod>,
    finalizer: String,
    states: watch::Receiver<ProgressByPod>,
    _watching: WatchTask,
}

impl PodFleet {
    /// Creates an empty namespace whose pods will expect `finalizer`.
    pub(crate) async fn start(client: &Client, namespace: &str, finalizer: &str) -> Result<PodFleet> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await.context("make the namespace")?;
        let (sender, states) = watch::channel(ProgressByPod::new());
        let (pre_checked, operate) = (Stage::PreChecked.key(ID), Stage::Operate.key(ID));
        let watching = observe(client.clone(), namespace, OPTED_IN, move |seen| {
            let PodFeedEvent::Version(pod) = seen else { return };
            sender.send_modify(|states| {
                let state = states.entry(pod.name_any()).or_default();
                state.pre_checked = pods::has_label(&pod, &pre_checked);
                state.operate = pods::has_label(&pod, &operate);
                state.available = pods::is_available(&pod);
                state.out.observe(&pod, state.operate);
            });
        })
        .await?;
        Ok(PodFleet {
            client: client.clone(),
            namespace: namespace.to_owned(),
            pods: Api::namespaced(client.clone(), namespace),
            finalizer: finalizer.to_owned(),
            states,
            _watching: watching,
        })
    }

    /// Creates the pods and waits until those that are opted in are available and the others exist.
    pub(crate) async fn make(&self, opted_in: usize, bystanders: usize) -> Result<()> {
        let expecting = pods::expecting("LoadBalancer/load/load", &self.finalizer);
        self.deploy(
            MEMBER,
            opted_in,
            json!({CONTROL_LABEL: "true"}),
            json!({AVAILABLE_CONDITIONS: expecting}),
        )
        .await?;
        self.deploy(BYSTANDER, bystanders, json!({}), json!({})).await?;
        self.until_count_available(opted_in).await?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let ready = |deployment: Option<&Deployment>| {
            let ready =
                deployment.and_then(|deployment| deployment.status.as_ref()?.ready_replicas).unwrap_or(0);
            usize::try_from(ready).is_ok_and(|ready| ready >= bystanders)
        };
        let waited = podward_support::await_condition(deployments, BYSTANDER, ready);
        tokio::time::timeout(DEADLINE, waited).await.context("wait for the bystanders")??;
        Ok(())
    }

    async fn deploy(
        &self,
        app: &str,
        replicas: usize,
        labels: serde_json::Value,
        annotations: serde_json::Value,
    ) -> Result<()> {
        let mut labels = labels;
        labels["app"] = json!(app);
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": app},
            "spec": {
                "replicas": replicas,
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                "selector": {"matchLabels": {"app": app}},
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": Self::spec(),
                },
            },
        }))?;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        deployments
            .create(&PostParams::default(), &deployment)
            .await
            .with_context(|| format!("make deployment {app}"))?;
        Ok(())
    }

    /// Creates pods without an owner, so that nothing replaces them, and returns their names.
    pub(crate) async fn make_bare(&self, prefix: &str, count: usize, opted_in: bool) -> Result<Vec<String>> {
        let mut metadata = json!({"labels": {"app": prefix}});
        if opted_in {
            metadata["labels"][CONTROL_LABEL] = json!("true");
            let expecting = pods::expecting("LoadBalancer/load/load", &self.finalizer);
            metadata["annotations"] = json!({AVAILABLE_CONDITIONS: expecting});
        }
        let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
        futures::stream::iter(&names)
            .map(|name| {
                let mut metadata = metadata.clone();
                metadata["name"] = json!(name);
                async move {
                    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": Self::spec()}))?;
                    let made = self.pods.create(&PostParams::default(), &pod).await;
                    made.map(drop).with_context(|| format!("make pod {name}"))
                }
            })
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect::<()>()
            .await?;
        Ok(names)
    }

    fn spec() -> serde_json::Value {
        json!({"containers": [{"name": "server", "image": "podward.local/demo-server:v1"}]})
    }

    /// Returns the names of the pods that are opted in, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.states.borrow().keys().cloned().collect();
        names.sort();
        names
    }

    pub(crate) async fn begin(&self, name: &str) -> Result<()> {
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        self.label(name, json!({Stage::Operating.key(ID): now, Stage::OperationType.key(ID): TYPE})).await
    }

    pub(crate) async fn finish(&self, name: &str) -> Result<()> {
        self.label(name, json!({Stage::Operating.key(ID): null, Stage::OperationType.key(ID): null})).await
    }

    pub(crate) async fn begin_all(&self, names: &[String]) -> Result<()> {
        futures::stream::iter(names)
            .map(|name| self.begin(name))
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect()
            .await
    }

    pub(crate) async fn finish_all(&self, names: &[String]) -> Result<()> {
        futures::stream::iter(names)
            .map(|name| self.finish(name))
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect()
            .await
    }

    /// Sets the label `key` of each pod to `value`. It causes one event per pod, and no other work.
    pub(crate) async fn touch_all(&self, names: &[String], key: &str, value: &str) -> Result<()> {
        futures::stream::iter(names)
            .map(|name| self.label(name, json!({key: value})))
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect()
            .await
    }

    async fn label(&self, name: &str, labels: serde_json::Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.pods
            .patch(name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("label pod {name}"))?;
        Ok(())
    }

    pub(crate) async fn until_pre_checked(&self, names: &[String]) -> Result<()> {
        // A pod with `operate` has passed, even if the label is gone by now.
        let test = |states: &ProgressByPod| of(states, names).all(|state| state.pre_checked || state.operate);
        self.until("all have pre-checked", test).await
    }

    pub(crate) async fn until_operate(&self, names: &[String]) -> Result<()> {
        self.until("all have operate", |states| of(states, names).all(|state| state.operate)).await
    }

    pub(crate) async fn until_available(&self, names: &[String]) -> Result<()> {
        self.until("all are available", |states| {
            of(states, names).all(|state| state.available && !state.operate)
        })
        .await
    }

    /// Waits until `count` pods are available.
    pub(crate) async fn until_count_available(&self, count: usize) -> Result<()> {
        self.until("all pods are available", |states| count_available(states) >= count).await
    }

    /// Returns how many pods are available.
    pub(crate) fn available(&self) -> usize {
        count_available(&self.states.borrow())
    }

    /// Returns how many of these pods have `operate`.
    pub(crate) fn operating(&self, names: &[String]) -> usize {
        of(&self.states.borrow(), names).filter(|state| state.operate).count()
    }

    /// Returns how long these pods were out of service until they had `operate`.
    pub(crate) fn times_to_operate(&self, names: &[String]) -> Times {
        Times::of_durations(of(&self.states.borrow(), names).filter_map(|state| state.out.until_end()))
    }

    /// Waits until no pod has changed for longer than the controller's reporting delay, so that late writes are
    /// counted.
    pub(crate) async fn settle(&self) {
        let mut states = self.states.clone();
        while tokio::time::timeout(QUIET, states.changed()).await.is_ok() {
            states.mark_unchanged();
        }
    }

    async fn until(&self, what: &str, test: impl Fn(&ProgressByPod) -> bool) -> Result<()> {
        let mut states = self.states.clone();
        let waited = tokio::time::timeout(DEADLINE, states.wait_for(|states| test(states))).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(anyhow!("the watch on pods has ended")),
            Err(_) => Err(anyhow!("waited {} s in vain until {what}", DEADLINE.as_secs())),
        }
    }
}

fn count_available(states: &ProgressByPod) -> usize {
    states.values().filter(|state| state.available).count()
}

fn of<'a>(states: &'a ProgressByPod, names: &'a [String]) -> impl Iterator<Item = PodProgress> + 'a {
    names.iter().map(|name| states.get(name).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_of_service_ends_once() {
        let pod = |gate| -> Pod {
            let conditions = json!([{"type": SERVICE_READY_GATE, "status": gate}]);
            serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap()
        };
        let mut out = TimeOut::default();
        out.observe(&pod("True"), true);
        assert_eq!(out.until_end(), None, "it was in service");
        out.observe(&pod("False"), false);
        assert_eq!(out.until_end(), None);
        out.observe(&pod("False"), true);
        let time = out.until_end().unwrap();
        out.observe(&pod("False"), true);
        assert_eq!(out.until_end(), Some(time));
        out.observe(&pod("True"), false);
        assert_eq!(out.until_end(), None);
    }
}
