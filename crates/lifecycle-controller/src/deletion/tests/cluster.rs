//! A namespace with pods, and a leader that looks at them: the joint of this module with the engine, as the controller makes it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::Stream;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus;
use kube::Client;
use kube::api::PostParams;
use kube::runtime::reflector::{self, ObjectRef};
use parking_lot::Mutex;
use podward_core::busy::BusyChecks;
use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE, SERVICE_READY_MESSAGE};
use podward_core::wish::Wish;
use podward_core::{Consumers, LabelChanges, NoRules, PodView, UnixNanos, plan};
use podward_runtime::admin::Condition;
use podward_runtime::watched::{Watch, WatchMetrics};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::super::{DeletionMetrics, Deletions, LostNodes, Outcome, Step};
use super::*;
use crate::busy::{costs, holds_deletion};
use crate::cached_pod::{CachedPod, PodKey};
use crate::error::Error;
use crate::reconcile::now;

const PATIENCE: Duration = Duration::from_secs(60);
const MAX_BUSY: Duration = Duration::from_secs(3600);

type Awake = Pin<Box<dyn Stream<Item = ObjectRef<CachedPod>> + Send>>;

pub(super) fn wish(kind: DeletionKind, by: &str) -> Wish {
    Wish::new(kind, by, UnixNanos(0))
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) async fn eventually<T: Debug, F: Future<Output = T>>(
    what: &str,
    ask: impl Fn() -> F,
    seen: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if seen(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not after {PATIENCE:?}, but {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the validating webhook does to the ReplicaSet controller, in short: its deletes are refused.
pub(super) async fn replica_sets_may_not_delete(client: &Client) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let policy = json!({
        "metadata": {"name": "held"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]},
            ]},
            "validations": [{"expression": format!("request.userInfo.username != '{REPLICA_SETS}'")}],
        },
    });
    let binding =
        json!({"metadata": {"name": "held"}, "spec": {"policyName": "held", "validationActions": ["Deny"]}});
    policies.create(&PostParams::default(), &read(policy)).await.unwrap();
    bindings.create(&PostParams::default(), &read(binding)).await.unwrap();
}

pub(super) struct Space {
    pub(super) client: Client,
    pub(super) requests: Requests,
    pub(super) awake: tokio::sync::Mutex<Awake>,
    namespace: String,
    deletions: Deletions,
    events: Mutex<Vec<&'static str>>,
}

/// All pods of a namespace at one moment.
pub(super) struct Seen(Vec<CachedPod>);

impl Seen {
    fn find(&self, name: &str) -> Option<&CachedPod> {
        self.0.iter().find(|pod| pod.key().name == name)
    }

    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.find(name).is_some_and(|pod| pod.view().ready)
    }

    pub(super) fn is_gone(&self, name: &str) -> bool {
        self.find(name).is_none()
    }

    pub(super) fn is_terminating(&self, name: &str) -> bool {
        self.find(name).is_none_or(|pod| pod.view().terminating)
    }

    /// The names of pods that begin so and are not terminating.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let here = self.0.iter().filter(|pod| !pod.view().terminating).map(|pod| pod.key().name);
        here.filter(|name| name.starts_with(prefix)).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|pod| !pod.view().terminating).count()
    }

    /// How many are called available.
    pub(super) fn available(&self) -> usize {
        self.0.iter().filter(|pod| pod.view().labels.contains_key(SERVICE_AVAILABLE)).count()
    }

    pub(super) fn wishes(&self) -> usize {
        self.0.iter().filter(|pod| pod.wish().is_some()).count()
    }

    pub(super) fn ready(&self) -> usize {
        self.0.iter().filter(|pod| pod.view().ready).count()
    }
}

impl Space {
    pub(super) async fn new(client: &Client, namespace: &str) -> Self {
        let spaces: Api<Namespace> = Api::all(client.clone());
        spaces.create(&PostParams::default(), &read(json!({"metadata": {"name": namespace}}))).await.unwrap();
        let (deletions, awake) =
            Deletions::new(client.clone(), lost_nodes(client.clone()), DeletionMetrics::new());
        Space {
            client: client.clone(),
            requests: Requests::new(client.clone(), DeletionMetrics::new()),
            awake: tokio::sync::Mutex::new(Box::pin(awake)),
            namespace: namespace.to_owned(),
            deletions,
            events: Mutex::default(),
        }
    }

    pub(super) fn key(&self, name: &str) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: name.to_owned() }
    }

    pub(super) fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) async fn get(&self, name: &str) -> Pod {
        self.api().get(name).await.unwrap()
    }

    /// Reasons of the events that there were, each once.
    pub(super) fn events(&self) -> Vec<&'static str> {
        let events: BTreeSet<&'static str> = self.events.lock().iter().copied().collect();
        events.into_iter().collect()
    }

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"app": "web", CONTROL_LABEL: "true"}},
            "spec": {
                "containers": [{"name": "main", "image": "a:1"}],
                "readinessGates": [{"conditionType": SERVICE_READY_GATE}],
            },
        })
    }

    pub(super) async fn pods(&self, count: usize) {
        for number in 0..count {
            let mut pod = Self::template();
            pod["metadata"]["name"] = json!(format!("web-{number}"));
            self.create_when_it_may(&pod).await;
        }
    }

    /// A new namespace has its service account a moment later, and no pods before.
    async fn create_when_it_may(&self, pod: &Value) {
        let create = async || {
            self.api().create(&PostParams::default(), &read(pod.clone())).await.map_err(|e| e.to_string())
        };
        eventually("the pod is made", create, Result::is_ok).await.unwrap();
    }

    pub(super) async fn replica_set(&self, replicas: usize) -> Vec<String> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let set = json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": Self::template()},
        });
        sets.create(&PostParams::default(), &read(set)).await.unwrap();
        let list = async || self.api().list(&ListParams::default()).await.unwrap().items;
        let pods = eventually("the pods are there", list, |pods| pods.len() == replicas).await;
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    pub(super) async fn scale(&self, replicas: usize) {
        self.scale_set("web", replicas).await;
    }

    pub(super) async fn scale_set(&self, name: &str, replicas: usize) {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        sets.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A Deployment `web` that surges by one and is never short of a pod.
    pub(super) async fn deployment(&self, replicas: usize) {
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": Self::template(),
                "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            },
        });
        self.deployments().create(&PostParams::default(), &read(deployment)).await.unwrap();
        let list = async || self.api().list(&ListParams::default()).await.unwrap().items;
        eventually("the pods are there", list, |pods| pods.len() == replicas).await;
    }

    pub(super) async fn patch_deployment(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.deployments().patch("web", &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn label_nodes(&self, labels: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The ReplicaSets of the Deployment, the oldest first.
    pub(super) async fn sets(&self) -> Vec<String> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut sets = sets.list(&ListParams::default()).await.unwrap().items;
        let revision = |set: &ReplicaSet| set.annotations().get("deployment.kubernetes.io/revision").cloned();
        sets.sort_by_key(|set| revision(set));
        sets.iter().map(|set| set.name_any()).collect()
    }

    pub(super) async fn budget(&self, wants: Value, allowed: i32) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut budget =
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        budget["spec"].as_object_mut().unwrap().extend(wants.as_object().unwrap().clone());
        budgets.create(&PostParams::default(), &read(budget)).await.unwrap();
        let status = async || self.read_budget().await;
        eventually("the budget is counted", status, |status| status.disruptions_allowed == allowed).await;
    }

    pub(super) async fn read_budget(&self) -> PodDisruptionBudgetStatus {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
        budgets.get("web").await.unwrap().status.unwrap_or_default()
    }

    async fn merge(&self, name: &str, metadata: Value) {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn label(&self, name: &str, labels: Value) {
        self.merge(name, json!({ "labels": labels })).await;
    }

    /// Says that the pod is busy, or not any more, with the cost that the lifecycle-controller would give it.
    pub(super) async fn busy(&self, name: &str, is_busy: bool) {
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), &self.namespace);
        let until = is_busy.then_some("2200-01-01T00:00:00Z");
        let mut annotations = json!({BUSY_UNTIL: until});
        for (key, text) in costs(&pods.get(name).await.unwrap(), is_busy, now()) {
            annotations[key] = json!(text);
        }
        self.merge(name, json!({ "annotations": annotations })).await;
    }

    /// Its containers take so long to end.
    pub(super) async fn stops_after(&self, name: &str, seconds: u8) {
        let annotations = json!({"simulate.podward.io/stop-seconds": seconds.to_string()});
        self.merge(name, json!({ "annotations": annotations })).await;
    }

    pub(super) async fn hold(&self, name: &str, finalizer: &str) {
        self.merge(name, json!({ "finalizers": [finalizer] })).await;
    }

    pub(super) async fn release(&self, name: &str, _finalizer: &str) {
        self.merge(name, json!({ "finalizers": null })).await;
    }

    /// Until all pods are Ready.
    pub(super) async fn settle(&self) {
        self.until("all pods are in service", |seen| !seen.0.is_empty() && seen.ready() == seen.0.len())
            .await;
    }

    /// Looks at all pods, as the leader would on their events, until `done`.
    pub(super) async fn until(&self, what: &str, done: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.look_at_all().await;
            if done(&seen) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}: {what}: not after {PATIENCE:?}, but {:#?}",
                self.namespace,
                seen.0
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Gives what there was to look at.
    pub(super) async fn look_at_all(&self) -> Seen {
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        for pod in &pods {
            match self.look(pod).await {
                Ok(()) | Err(Error::Conflict { .. } | Error::Gone { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        Seen(pods)
    }

    async fn look(&self, pod: &CachedPod) -> Result<(), Error> {
        let step = match self.deletions.carry_out(pod).await? {
            Outcome::NotDue => self.deletions.step(pod, holds_deletion(pod, MAX_BUSY, now())).await?,
            Outcome::Deleted(draft) => {
                self.events.lock().push(draft.reason);
                return Ok(());
            }
            Outcome::Refused(_) => return Ok(()),
            Outcome::Stays(step) => *step,
        };
        self.write(pod, &step).await?;
        if let Some(draft) = &step.event {
            self.events.lock().push(draft.reason);
        }
        self.deletions.written(pod, &step).await;
        Ok(())
    }

    async fn write(&self, pod: &CachedPod, step: &Step) -> Result<(), Error> {
        let mut labels = pod.view().labels.clone();
        step.changes.labels.apply(&mut labels);
        let view = PodView { labels: &labels, ..pod.view() };
        let now = now();
        let busy = BusyChecks::new(&view, MAX_BUSY, now, &NoRules);
        let plan = plan(&view, &Consumers::none(), &step.checks(&busy), now);
        let mut after = view.labels.clone();
        plan.labels.apply(&mut after);
        let changes = LabelChanges::between(pod.view().labels, &after);
        if changes.is_empty() && step.changes.annotations.is_empty() && plan.gate.is_none() {
            return Ok(());
        }
        let mut patch = json!({
            "metadata": {
                "uid": pod.uid(), "resourceVersion": pod.resource_version(),
                "labels": changes.to_merge_patch(), "annotations": step.changes.annotations,
            },
        });
        if let Some(gate) = plan.gate {
            patch["status"] = json!({"conditions": [
                {"type": SERVICE_READY_GATE, "status": gate.as_str(), "message": SERVICE_READY_MESSAGE},
            ]});
        }
        let written =
            self.api().patch_status(&pod.key().name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        written.map(|_| ()).map_err(|source| Error::api("write", pod.key(), source))
    }
}

/// None is ever lost here.
fn lost_nodes(client: Client) -> LostNodes {
    let watch = Watch {
        name: "nodes",
        listed: Condition::default(),
        metrics: WatchMetrics::default(),
        may_be_absent: false,
        stop: CancellationToken::new(),
    };
    LostNodes::follow(client, watch, Duration::from_secs(60), reflector::store().0).0
}
