//! A namespace with pods, and a leader that reconciles them: combines this crate with the core as the
//! lifecycle-controller does.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::Instant;

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
use podward_core::deletion::request::DeletionRequest;
use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE, SERVICE_READY_MESSAGE};
use podward_core::{LabelChanges, NoRules, PodHooks, PodView, UnixNanos, plan};
use podward_kube_util::watched::{Watch, WatchMetrics};
use podward_runtime::admin::ReadinessCondition;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use podward_kube_util::{PodKey, deletion_cost_changes, holds_deletion, now};

use super::*;
use crate::watches::WaitingPods;
use crate::{DeletionMetrics, DeletionOutcome, DeletionStep, Deletions, LostNodes};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_BUSY: Duration = Duration::from_secs(3600);

type Wakeups = Pin<Box<dyn Stream<Item = ObjectRef<CachedPod>> + Send>>;

pub(super) fn deletion_request(kind: DeletionKind, by: &str) -> DeletionRequest {
    DeletionRequest::new(kind, by, UnixNanos(0)).with_groups(&["system:masters".to_owned()])
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) async fn eventually<T: Debug, F: Future<Output = T>>(
    what: &str,
    read: impl Fn() -> F,
    done: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let value = read().await;
        if done(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout after {WAIT_TIMEOUT:?}: {what}: {value:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Denies all deletes of the ReplicaSet and the Job controller, as the validating webhook does.
pub(super) async fn deny_deletes_of_workload_controllers(client: &Client) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let policy = json!({
        "metadata": {"name": "held"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]},
            ]},
            "validations": [{"expression": format!("!(request.userInfo.username in ['{REPLICA_SET_CONTROLLER}', '{JOB_CONTROLLER}'])")}],
        },
    });
    let binding =
        json!({"metadata": {"name": "held"}, "spec": {"policyName": "held", "validationActions": ["Deny"]}});
    policies.create(&PostParams::default(), &read(policy)).await.unwrap();
    bindings.create(&PostParams::default(), &read(binding)).await.unwrap();
}

pub(super) struct Fixture {
    pub(super) client: Client,
    pub(super) writer: DeletionRequestWriter,
    pub(super) wakeups: tokio::sync::Mutex<Wakeups>,
    namespace: String,
    deletions: Deletions,
    events: Mutex<Vec<&'static str>>,
}

/// All pods of a namespace at one time.
pub(super) struct Pods(Vec<CachedPod>);

impl Pods {
    fn find(&self, name: &str) -> Option<&CachedPod> {
        self.0.iter().find(|pod| pod.key().name == name)
    }

    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.find(name).is_some_and(|pod| pod.view().ready)
    }

    pub(super) fn is_gone(&self, name: &str) -> bool {
        self.find(name).is_none()
    }

    /// Returns true if the pod has the label that requests its deletion.
    pub(super) fn is_marked(&self, name: &str) -> bool {
        self.find(name).is_some_and(|pod| pod.view().labels.contains_key(TO_DELETE))
    }

    pub(super) fn is_terminating(&self, name: &str) -> bool {
        self.find(name).is_none_or(|pod| pod.view().terminating)
    }

    /// Returns the names of the pods that begin with `prefix` and are not terminating.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let here = self.0.iter().filter(|pod| !pod.view().terminating).map(|pod| pod.key().name);
        here.filter(|name| name.starts_with(prefix)).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|pod| !pod.view().terminating).count()
    }

    /// Returns how many pods have the label for available pods.
    pub(super) fn available(&self) -> usize {
        self.0.iter().filter(|pod| pod.view().labels.contains_key(SERVICE_AVAILABLE)).count()
    }

    pub(super) fn requests(&self) -> usize {
        self.0.iter().filter(|pod| pod.deletion_request().is_some()).count()
    }

    pub(super) fn ready(&self) -> usize {
        self.0.iter().filter(|pod| pod.view().ready).count()
    }
}

impl Fixture {
    pub(super) async fn new(client: &Client, namespace: &str) -> Self {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &read(json!({"metadata": {"name": namespace}})))
            .await
            .unwrap();
        let (deletions, wakeups) =
            Deletions::new(client.clone(), lost_nodes(client.clone()), DeletionMetrics::new());
        Fixture {
            client: client.clone(),
            writer: DeletionRequestWriter::new(client.clone(), DeletionMetrics::new()),
            wakeups: tokio::sync::Mutex::new(Box::pin(wakeups)),
            namespace: namespace.to_owned(),
            deletions,
            events: Mutex::default(),
        }
    }

    /// Tries deletions as dry runs in the name of their requesters.
    pub(super) fn with_dry_runs(self) -> Self {
        Fixture { deletions: self.deletions.with_dry_runs(), ..self }
    }

    pub(super) fn key(&self, name: &str) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: name.to_owned() }
    }

    pub(super) fn waiting(&self) -> &WaitingPods {
        &self.deletions.waiting
    }

    pub(super) fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) async fn get(&self, name: &str) -> Pod {
        self.api().get(name).await.unwrap()
    }

    /// Returns the reasons of all events, each once.
    pub(super) fn events(&self) -> Vec<&'static str> {
        let events: BTreeSet<&'static str> = self.events.lock().iter().copied().collect();
        events.into_iter().collect()
    }

    pub(super) fn template() -> Value {
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
            self.web_pod(number).await;
        }
    }

    pub(super) async fn web_pod(&self, number: usize) {
        let mut pod = Self::template();
        pod["metadata"]["name"] = json!(format!("web-{number}"));
        self.create_pod(&pod).await;
    }

    /// Creates the pod `name`, which no workload owns.
    pub(super) async fn other_pod(&self, name: &str) {
        let mut pod = Self::template();
        pod["metadata"] = json!({"name": name, "labels": {CONTROL_LABEL: "true"}});
        self.create_pod(&pod).await;
    }

    /// Creates `pod`, again and again until the service account of the new namespace exists.
    pub(super) async fn create_pod(&self, pod: &Value) {
        let create = async || {
            self.api().create(&PostParams::default(), &read(pod.clone())).await.map_err(|e| e.to_string())
        };
        eventually("the pod is created", create, Result::is_ok).await.unwrap();
    }

    pub(super) async fn replica_set(&self, replicas: usize) -> Vec<String> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let set = json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": Self::template()},
        });
        sets.create(&PostParams::default(), &read(set)).await.unwrap();
        let list = async || self.api().list(&ListParams::default()).await.unwrap().items;
        let pods = eventually("the pods exist", list, |pods| pods.len() == replicas).await;
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

    /// Creates the Deployment `web` with a surge of one pod and no unavailable pods.
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
        eventually("the pods exist", list, |pods| pods.len() == replicas).await;
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

    /// Returns the names of the ReplicaSets of the Deployment, the oldest first.
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
        eventually("the disruption controller counts the budget", status, |status| {
            status.disruptions_allowed == allowed
        })
        .await;
    }

    pub(super) async fn read_budget(&self) -> PodDisruptionBudgetStatus {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
        budgets.get("web").await.unwrap().status.unwrap_or_default()
    }

    pub(super) async fn merge(&self, name: &str, metadata: Value) {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn label(&self, name: &str, labels: Value) {
        self.merge(name, json!({ "labels": labels })).await;
    }

    pub(super) async fn annotate(&self, name: &str, annotations: Value) {
        self.merge(name, json!({ "annotations": annotations })).await;
    }

    /// Requests the deletion of the pod with the label, as the mutating-webhook stores it for a user of this group.
    pub(super) async fn request_by_label(&self, name: &str, user: &str, group: &str) {
        let author = json!({"user": user, "groups": [group]}).to_string();
        self.annotate(name, json!({TO_DELETE_BY: author})).await;
        self.label(name, json!({TO_DELETE: "1"})).await;
    }

    /// Marks the pod as busy or not busy, with the deletion cost that the lifecycle-controller would set.
    pub(super) async fn busy(&self, name: &str, is_busy: bool) {
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), &self.namespace);
        let until = is_busy.then_some("2200-01-01T00:00:00Z");
        let mut annotations = json!({BUSY_UNTIL: until});
        for (key, text) in deletion_cost_changes(&pods.get(name).await.unwrap(), is_busy, now()) {
            annotations[key] = json!(text);
        }
        self.merge(name, json!({ "annotations": annotations })).await;
    }

    /// The containers of the pod take `seconds` to stop.
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

    /// Reconciles until all pods are Ready.
    pub(super) async fn until_in_service(&self) {
        self.until("all pods are in service", |seen| !seen.0.is_empty() && seen.ready() == seen.0.len())
            .await;
    }

    /// Reconciles all pods, as the leader does on events, until `done` is true.
    pub(super) async fn until(&self, what: &str, done: impl Fn(&Pods) -> bool) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let seen = self.reconcile_all().await;
            if done(&seen) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}: timeout after {WAIT_TIMEOUT:?}: {what}: {:#?}",
                self.namespace,
                seen.0
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Reconciles all pods and returns them as they were before.
    pub(super) async fn reconcile_all(&self) -> Pods {
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        for pod in &pods {
            match self.reconcile(pod).await {
                Ok(()) | Err(ApiError::Conflict { .. } | ApiError::Gone { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        Pods(pods)
    }

    async fn reconcile(&self, pod: &CachedPod) -> Result<(), ApiError> {
        let step = match self.deletions.execute(pod).await? {
            DeletionOutcome::NotDue => self.deletions.step(pod, holds_deletion(pod, MAX_BUSY, now())).await?,
            DeletionOutcome::Deleted(draft) => {
                self.events.lock().push(draft.reason);
                return Ok(());
            }
            DeletionOutcome::Refused(_) => return Ok(()),
            DeletionOutcome::Stays(step) => *step,
        };
        self.write(pod, &step).await?;
        if let Some(draft) = &step.event {
            self.events.lock().push(draft.reason);
        }
        self.deletions.after_write(pod, &step).await;
        Ok(())
    }

    async fn write(&self, pod: &CachedPod, step: &DeletionStep) -> Result<(), ApiError> {
        let mut labels = pod.view().labels.clone();
        step.changes.labels.apply(&mut labels);
        let view = PodView { labels: &labels, ..pod.view() };
        let now = now();
        let busy = BusyChecks::new(&view, MAX_BUSY, now, &NoRules);
        let plan = plan(&view, &PodHooks::none(), &step.checks(&busy), now);
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
        written.map(|_| ()).map_err(|source| ApiError::api("write", pod.key(), source))
    }
}

/// Returns lost nodes with a limit that no node reaches in these tests.
pub(super) fn lost_nodes(client: Client) -> LostNodes {
    let watch = Watch {
        name: "nodes",
        listed: ReadinessCondition::default(),
        metrics: WatchMetrics::default(),
        may_be_absent: false,
        stop: CancellationToken::new(),
    };
    LostNodes::follow(client, watch, Duration::from_secs(60), reflector::store().0).0
}
