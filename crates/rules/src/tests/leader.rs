//! A controller for tests of rules: it follows pods, reconciles them, and writes what the core plans.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, Stream, StreamExt};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher::Event;
use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE, SERVICE_READY_GATE, Stage};
use podward_core::rules::check_requests;
use podward_core::{NoRules, PodHooks, UnixNanos, plan};
use podward_kube_util::watched::WatchMetrics;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::{RuleMetrics, RuleObservers, Rules};
use super::api_server::{ApiServer, Kind, is_opted_in};
use podward_kube_util::CachedPod;
use podward_kube_util::now;
use podward_kube_util::{EventMetrics, Events};
use podward_traces::OperationTraces;

/// A test that waits longer fails.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) struct Leader {
    pub(super) rules: Rules,
    pub(super) server: ApiServer,
    store: Store<CachedPod>,
    writer: Writer<CachedPod>,
    to_reconcile: Pin<Box<dyn Stream<Item = ObjectRef<CachedPod>> + Send>>,
    seen: u64,
    own: BTreeMap<String, Arc<CachedPod>>,
    /// By pod: what the last reconciliation says that it waits for.
    messages: BTreeMap<String, String>,
    stop: CancellationToken,
}

/// Returns a dialer that may connect to loopback, where the webhooks of tests are.
fn dialer() -> GuardedDialer {
    let allowed = ["127.0.0.0/8".parse().unwrap()];
    GuardedDialer::new(AddressPolicy::new(&allowed, ApiServerAddresses::fixed([])))
}

impl Leader {
    pub(super) fn start(server: &ApiServer, identity: &str) -> Self {
        let (store, writer) = reflector::store();
        let stop = CancellationToken::new();
        let observers = RuleObservers {
            metrics: RuleMetrics::default(),
            watches: WatchMetrics::default(),
            events: Events::start(server.client(), "lifecycle-controller", identity, EventMetrics::default()),
            traces: OperationTraces::default(),
        };
        let (rules, to_reconcile) =
            Rules::start(server.client(), identity, store.clone(), observers, dialer(), stop.clone());
        let (server, to_reconcile) = (server.clone(), Box::pin(to_reconcile));
        let (own, messages) = (BTreeMap::new(), BTreeMap::new());
        let mut leader = Leader { rules, server, store, writer, to_reconcile, seen: 0, own, messages, stop };
        leader.take(Event::Init);
        let events = leader.server.pods_since(0);
        let mut listed: BTreeMap<String, CachedPod> = BTreeMap::new();
        for (version, event, object) in events {
            leader.seen = version;
            let event = if is_opted_in(&object) { event } else { "DELETED" };
            let pod: CachedPod = serde_json::from_value(object).unwrap();
            match event {
                "DELETED" => drop(listed.remove(&pod.key().name)),
                _ => drop(listed.insert(pod.key().name, pod)),
            }
        }
        listed.into_values().for_each(|pod| leader.take(Event::InitApply(pod)));
        leader.take(Event::InitDone);
        leader
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        self.rules.stopped().await;
        assert_eq!(self.server.hasty_writes(), [] as [&str; 0], "written twice within a second");
    }

    fn take(&mut self, event: Event<CachedPod>) {
        self.writer.apply_watcher_event(&event);
        self.rules.observe_event(&event);
    }

    /// Processes the events of pods so far.
    pub(super) fn follow(&mut self) {
        for (version, event, object) in self.server.pods_since(self.seen) {
            self.seen = version;
            let event = if is_opted_in(&object) { event } else { "DELETED" };
            let pod: CachedPod = serde_json::from_value(object).unwrap();
            self.take(if event == "DELETED" { Event::Delete(pod) } else { Event::Apply(pod) });
        }
    }

    fn pod(&self, name: &str) -> Option<Arc<CachedPod>> {
        let stored = self.store.get(&ObjectRef::new(name).within("shop"));
        let own = self.own.get(name).cloned();
        match (stored, own) {
            (Some(stored), Some(own)) if own.is_newer_than(&stored) => Some(own),
            (stored, _) => stored,
        }
    }

    /// Reconciles a pod. Returns the message that says what the pod waits for.
    pub(super) fn reconcile(&mut self, name: &str) -> String {
        let Some(pod) = self.pod(name) else { return String::new() };
        let rules = self.rules.checks(&pod);
        let view = pod.view();
        let now = now();
        let mut plan = plan(&view, &PodHooks::none(), &rules, now);
        let explanation = plan.explain(&view, &rules);
        self.messages.insert(name.to_owned(), explanation.message.clone());
        rules.renew(&mut plan.labels, now);
        self.rules.set_other_checks(&pod, &rules, &plan, &NoRules);
        if plan.labels.is_empty() && plan.gate.is_none() {
            return explanation.message;
        }
        let mut object = self.server.get(Kind::Pods, name).unwrap_or_default();
        let labels: BTreeMap<String, String> =
            serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
        let mut labels = labels;
        plan.labels.apply(&mut labels);
        object["metadata"]["labels"] = json!(labels);
        let planned = plan.annotations.into_iter().map(|(key, text)| (key.to_owned(), text));
        for (key, text) in planned.chain(rules.details(&pod)) {
            object["metadata"]["annotations"][key] = json!(text);
        }
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|_, text| !text.is_null());
        }
        if let Some(gate) = plan.gate {
            object["status"]["conditions"] = conditions(gate.as_str());
        }
        if object["metadata"]["name"].is_string()
            && let Some(stored) = self.server.store(Kind::Pods, object, Some(pod.resource_version()))
        {
            let stored: Arc<CachedPod> = Arc::new(serde_json::from_value(stored).unwrap());
            self.rules.observe_write(&stored);
            self.own.insert(name.to_owned(), stored);
        }
        explanation.message
    }

    /// Returns what the pod waits for by its last reconciliation, without another one.
    pub(super) fn message(&self, name: &str) -> &str {
        self.messages.get(name).map_or("", String::as_str)
    }

    /// Returns the text of the event for each check request of a pod that rules refuse.
    pub(super) fn refusal_texts(&self, name: &str) -> Vec<String> {
        let pod = self.pod(name).unwrap();
        let rules = self.rules.checks(&pod);
        let requests = check_requests(pod.view().labels);
        let refused = requests.into_iter().filter(|request| rules.refuse(request));
        refused.map(|request| self.rules.describe_refusals("shop", &rules, &request)).collect()
    }

    /// Reconciles all pods.
    pub(super) fn reconcile_all(&mut self) {
        let names: Vec<String> = self.store.state().iter().map(|pod| pod.key().name).collect();
        for name in names {
            self.reconcile(&name);
        }
    }

    /// Reconciles all pods once, and then pods that changed or are to be reconciled again, until `done`.
    pub(super) async fn until(&mut self, what: &str, mut done: impl FnMut(&mut Leader) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        self.follow();
        self.reconcile_all();
        loop {
            let before = self.seen;
            self.follow();
            if self.seen != before {
                self.reconcile_all();
            }
            while let Some(Some(pod)) = self.to_reconcile.next().now_or_never() {
                self.reconcile(&pod.name);
            }
            if done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: not after {TEST_TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn conditions(gate: &str) -> Value {
    json!([
        {"type": SERVICE_READY_GATE, "status": gate}, {"type": "Ready", "status": gate},
        {"type": "ContainersReady", "status": "True"},
    ])
}

/// Returns an available pod of the ReplicaSet `web`.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {CONTROL_LABEL: "true", SERVICE_AVAILABLE: "1", "app": "web"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true},
            ],
        },
        "spec": {"readinessGates": [{"conditionType": SERVICE_READY_GATE}]},
        "status": {"phase": "Running", "conditions": conditions("True")},
    })
}

impl ApiServer {
    /// Creates `count` pods, and the ReplicaSet that wants `replicas`.
    pub(super) fn pods(&self, count: usize, replicas: usize) {
        for number in 0..count {
            self.store(Kind::Pods, pod(&format!("web-{number}")), None).unwrap();
        }
        self.scale(replicas);
    }

    pub(super) fn scale(&self, replicas: usize) {
        self.scale_owner("web", replicas);
    }

    /// Makes the ReplicaSet `name` want `replicas`.
    pub(super) fn scale_owner(&self, name: &str, replicas: usize) {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "uid": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}},
        });
        self.store(Kind::Sets, set, None).unwrap();
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(Kind::Pods, name).unwrap();
        change(&mut object);
        self.store(Kind::Pods, object, None).unwrap();
    }

    /// Announces an operation, with the labels that the mutating webhook adds.
    pub(super) fn begin(&self, name: &str) {
        let UnixNanos(at) = now();
        self.change(name, |pod| {
            let labels = &mut pod["metadata"]["labels"];
            labels[Stage::Operating.key("a")] = json!(at.to_string());
            labels[Stage::OperationType.key("a")] = json!("update");
            labels[Stage::PreCheck.key("a")] = json!(at.to_string());
        });
    }

    /// Ends the work of the operation, so that its result is checked.
    pub(super) fn finish_work(&self, name: &str) {
        let UnixNanos(at) = now();
        self.change(name, |stored| {
            let labels = &mut stored["metadata"]["labels"];
            *labels = json!({CONTROL_LABEL: "true", "app": "web"});
            labels[Stage::DoneOperationType.key("a")] = json!("update");
            for stage in [Stage::Operated, Stage::PostCheck] {
                labels[stage.key("a")] = json!(at.to_string());
            }
            stored["status"]["conditions"] = conditions("False");
        });
    }

    pub(super) fn label(&self, name: &str, key: &str, value: &str) {
        self.change(name, |pod| pod["metadata"]["labels"][key] = json!(value));
    }

    /// Ends the operation, and makes the pod available.
    pub(super) fn finish(&self, name: &str) {
        self.change(name, |stored| {
            stored["metadata"]["labels"] = pod(name)["metadata"]["labels"].clone();
            stored["status"]["conditions"] = conditions("True");
        });
    }

    pub(super) fn labels(&self, name: &str) -> BTreeMap<String, String> {
        let object = self.get(Kind::Pods, name).unwrap();
        serde_json::from_value(object["metadata"]["labels"].clone()).unwrap()
    }

    /// Returns the unavailable ones of `count` pods.
    pub(super) fn out(&self, count: usize) -> Vec<String> {
        let names = (0..count).map(|number| format!("web-{number}"));
        names.filter(|name| !self.labels(name).contains_key(SERVICE_AVAILABLE)).collect()
    }
}
