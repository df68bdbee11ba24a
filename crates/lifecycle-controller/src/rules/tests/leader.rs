//! A controller as far as rules are concerned: it follows pods, looks at them, and writes what the core makes of them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, Stream, StreamExt};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher::Event;
use podward_core::keys::{CONTROL_LABEL, SERVICE_AVAILABLE, SERVICE_READY_GATE, Stage};
use podward_core::rules::askings;
use podward_core::{Consumers, NoRules, UnixNanos, plan};
use podward_runtime::watched::WatchMetrics;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::{RuleMetrics, Rules, Telling};
use super::server::{Kind, Server};
use crate::cached_pod::CachedPod;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::reconcile::now;
use crate::traces::Traces;

/// No test waits for longer: it has failed then.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Leader {
    pub(super) rules: Rules,
    pub(super) server: Server,
    store: Store<CachedPod>,
    writer: Writer<CachedPod>,
    awake: Pin<Box<dyn Stream<Item = ObjectRef<CachedPod>> + Send>>,
    seen: u64,
    own: BTreeMap<String, Arc<CachedPod>>,
    stop: CancellationToken,
}

impl Leader {
    pub(super) fn start(server: &Server, identity: &str) -> Self {
        let (store, writer) = reflector::store();
        let stop = CancellationToken::new();
        let telling = Telling {
            metrics: RuleMetrics::default(),
            watches: WatchMetrics::default(),
            events: Events::start(server.client(), identity, Arc::new(Metrics::new())),
            traces: Traces::default(),
        };
        let (rules, awake) = Rules::start(server.client(), identity, store.clone(), telling, stop.clone());
        let (server, awake) = (server.clone(), Box::pin(awake));
        let mut leader = Leader { rules, server, store, writer, awake, seen: 0, own: BTreeMap::new(), stop };
        leader.take(Event::Init);
        let events = leader.server.pods_since(0);
        let mut listed: BTreeMap<String, CachedPod> = BTreeMap::new();
        for (version, event, object) in events {
            leader.seen = version;
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
        self.rules.followed(&event);
    }

    /// Takes over what the watch of pods has brought by now.
    pub(super) fn follow(&mut self) {
        for (version, event, object) in self.server.pods_since(self.seen) {
            self.seen = version;
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

    /// Looks at a pod. Gives what it says that the pod waits for.
    pub(super) fn look(&mut self, name: &str) -> String {
        let Some(pod) = self.pod(name) else { return String::new() };
        let rules = self.rules.checks(&pod);
        let view = pod.view();
        let now = now();
        let mut plan = plan(&view, &Consumers::none(), &rules, now);
        let explanation = plan.explain(&view, &rules);
        rules.renew(&mut plan.labels, now);
        self.rules.heard(&pod, &rules, &plan, &NoRules);
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
            self.rules.wrote(&stored);
            self.own.insert(name.to_owned(), stored);
        }
        explanation.message
    }

    /// What people are told of the rules that refuse a pod, for each operation that they keep waiting.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let pod = self.pod(name).unwrap();
        let rules = self.rules.checks(&pod);
        let asked = askings(pod.view().labels).into_iter().filter(|asking| rules.refuse(asking));
        asked.map(|asking| self.rules.words("shop", &rules, &asking)).collect()
    }

    /// Looks at all pods.
    pub(super) fn look_at_all(&mut self) {
        let names: Vec<String> = self.store.state().iter().map(|pod| pod.key().name).collect();
        for name in names {
            self.look(&name);
        }
    }

    /// Follows and looks at all pods, once now and then at those that it is told to, until `done`; `always` holds all the time.
    pub(super) async fn until(&mut self, what: &str, mut done: impl FnMut(&mut Leader) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        self.follow();
        self.look_at_all();
        loop {
            let before = self.seen;
            self.follow();
            if self.seen != before {
                self.look_at_all();
            }
            while let Some(Some(pod)) = self.awake.next().now_or_never() {
                self.look(&pod.name);
            }
            if done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: not after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn conditions(gate: &str) -> Value {
    json!([{"type": SERVICE_READY_GATE, "status": gate}, {"type": "Ready", "status": gate}, {"type": "ContainersReady", "status": "True"}])
}

/// A pod in service, of the ReplicaSet `web`.
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

impl Server {
    /// So many pods, and the ReplicaSet that wants `replicas`.
    pub(super) fn pods(&self, count: usize, replicas: usize) {
        for number in 0..count {
            self.store(Kind::Pods, pod(&format!("web-{number}")), None).unwrap();
        }
        self.scale(replicas);
    }

    pub(super) fn scale(&self, replicas: usize) {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "uid": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}},
        });
        self.store(Kind::Sets, set, None).unwrap();
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(Kind::Pods, name).unwrap();
        change(&mut object);
        self.store(Kind::Pods, object, None).unwrap();
    }

    /// Announces an operation, with what the webhook adds.
    pub(super) fn begin(&self, name: &str) {
        let UnixNanos(at) = now();
        self.change(name, |pod| {
            let labels = &mut pod["metadata"]["labels"];
            labels[Stage::Operating.key("a")] = json!(at.to_string());
            labels[Stage::OperationType.key("a")] = json!("update");
            labels[Stage::PreCheck.key("a")] = json!(at.to_string());
        });
    }

    /// The operation is done, and its result is to be judged.
    pub(super) fn judge(&self, name: &str) {
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

    /// The operation is over, and the pod is back in service.
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

    /// Which of `count` pods are out of service.
    pub(super) fn out(&self, count: usize) -> Vec<String> {
        let names = (0..count).map(|number| format!("web-{number}"));
        names.filter(|name| !self.labels(name).contains_key(SERVICE_AVAILABLE)).collect()
    }
}
