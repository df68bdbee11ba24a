//! What the engine costs per pod: the aim is under 5 us for `advance`. Run with `cargo bench -p podward-core`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use divan::{Bencher, black_box};
use podward_core::keys::{self, Stage};
use podward_core::{
    ConditionStatus, NoRules, Pod, PodFacts, PodView, ReviewPolicy, UnixNanos, Writer, advance, explain,
    on_update, plan_labels, review,
};
use serde_json::{Value, json};

const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);
const CONSUMER: &str = "prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb";
const EXPECTED: &str = r#"{"expectedFinalizers":{"Service/default/server":"prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"}}"#;

fn main() {
    divan::main();
}

/// A pod with 25 labels, as a platform with a mesh, a workload and a few teams leaves it.
#[derive(Clone)]
struct Typical {
    labels: BTreeMap<String, String>,
    finalizers: Vec<String>,
    gate: ConditionStatus,
}

impl Typical {
    fn new(stages: &[Stage], gate: ConditionStatus, held: bool) -> Typical {
        let mut labels = BTreeMap::from([(keys::CONTROL_LABEL.to_owned(), keys::CONTROL_VALUE.to_owned())]);
        for stage in stages {
            let is_type = matches!(stage, Stage::OperationType | Stage::DoneOperationType);
            let value = if is_type { "update".to_owned() } else { NOW.to_string() };
            labels.insert(stage.key("collaset"), value);
        }
        if stages.contains(&Stage::PreChecked) {
            labels.insert(keys::permission_key("update"), NOW.to_string());
        }
        if stages.is_empty() {
            labels.insert(keys::SERVICE_AVAILABLE.to_owned(), NOW.to_string());
        }
        for i in labels.len()..25 {
            labels.insert(format!("team-{i}.example.com/label-number-{i}"), format!("value-{i}"));
        }
        let mut finalizers = vec!["example.com/finalizer".to_owned()];
        finalizers.extend(held.then(|| CONSUMER.to_owned()));
        Typical { labels, finalizers, gate }
    }

    fn without(&self, key: &str) -> Typical {
        let mut without = self.clone();
        without.labels.remove(key);
        without
    }

    fn view(&self) -> PodView<'_> {
        PodView {
            labels: &self.labels,
            available_conditions: Some(EXPECTED),
            finalizers: &self.finalizers,
            has_gate: true,
            gate: Some(self.gate),
            ready: self.gate == ConditionStatus::True,
            terminating: false,
            facts: PodFacts::default(),
        }
    }

    /// The whole document, of about 10 kB.
    fn json(&self) -> Value {
        let fields: BTreeMap<String, Value> =
            self.labels.keys().map(|key| (format!("f:{key}"), json!({}))).collect();
        let container = |i: usize| {
            let env: Vec<Value> = (0..8)
                .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("value {n}")}))
                .collect();
            json!({
                "name": format!("container-{i}"), "image": "registry.example.com/team/app:1.2.3", "env": env,
                "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1},
                "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": true}],
                "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
            })
        };
        let status = |i: usize| {
            json!({
                "name": format!("container-{i}"), "ready": true, "restartCount": 0, "started": true,
                "containerID": "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "imageID": "registry.example.com/team/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            })
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-7d4b9c6f5-x2x2x", "namespace": "default", "uid": "00000000-0000-0000-0000-000000000000",
                "labels": self.labels, "finalizers": self.finalizers,
                "annotations": {keys::AVAILABLE_CONDITIONS: EXPECTED, "example.com/config": "x".repeat(600)},
                "managedFields": [{"manager": "controller", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": fields}}}],
            },
            "spec": {
                "containers": (0..5).map(container).collect::<Vec<_>>(),
                "readinessGates": [{"conditionType": keys::SERVICE_READY_GATE}],
            },
            "status": {
                "phase": "Running", "containerStatuses": (0..5).map(status).collect::<Vec<_>>(),
                "conditions": [
                    {"type": "Initialized", "status": "True"},
                    {"type": "Ready", "status": if self.gate == ConditionStatus::True { "True" } else { "False" }},
                    {"type": keys::SERVICE_READY_GATE, "status": self.gate.as_str()},
                ],
            },
        })
    }

    fn pod(&self) -> Pod {
        serde_json::from_value(self.json()).unwrap()
    }
}

fn idle() -> Typical {
    Typical::new(&[], ConditionStatus::True, true)
}

fn begun() -> Typical {
    let mut begun = idle();
    begun.labels.insert(Stage::Operating.key("collaset"), NOW.to_string());
    begun.labels.insert(Stage::OperationType.key("collaset"), "update".to_owned());
    begun
}

fn preparing(gate: ConditionStatus, held: bool) -> Typical {
    let stages = [Stage::Operating, Stage::OperationType, Stage::PreChecked, Stage::Preparing];
    Typical::new(&stages, gate, held)
}

fn operating() -> Typical {
    let stages = [Stage::Operating, Stage::OperationType, Stage::PreChecked, Stage::Operate];
    Typical::new(&stages, ConditionStatus::False, false)
}

fn completing(held: bool) -> Typical {
    let stages = [Stage::Operated, Stage::DoneOperationType, Stage::PostChecked, Stage::Completing];
    Typical::new(&stages, ConditionStatus::True, held)
}

/// A write within an admission request: the name, what is stored, what is written.
fn writes() -> [(&'static str, Typical, Typical); 5] {
    let finished = operating().without(&Stage::Operating.key("collaset"));
    [
        ("idle", idle(), idle()),
        ("begin", idle(), begun()),
        (
            "preparing to operate",
            preparing(ConditionStatus::False, true),
            preparing(ConditionStatus::False, false),
        ),
        ("finish", operating(), finished),
        ("completing to none", completing(false), completing(true)),
    ]
}

fn of(name: &str) -> (Typical, Typical) {
    let found = writes().into_iter().find(|(known, ..)| *known == name);
    found.map(|(_, old, new)| (old, new)).unwrap()
}

const WRITES: [&str; 5] = ["idle", "begin", "preparing to operate", "finish", "completing to none"];

#[divan::bench(args = WRITES)]
fn advance_one_pod(bencher: Bencher<'_, '_>, name: &str) {
    let (old, new) = of(name);
    assert_eq!(advance(Some(&old.view()), &new.view(), NOW).is_empty(), name == "idle");
    bencher.bench(|| advance(Some(&black_box(&old).view()), &black_box(&new).view(), NOW));
}

/// A pod with this many operations that have lost their type, and as many permissions, all but one of which are claimed
/// by others. The cost must grow with the number of labels, not with its square.
#[divan::bench(args = [300, 3_000])]
fn advance_operations_of_lost_types(bencher: Bencher<'_, '_>, many: usize) {
    let mut pod = idle();
    for number in 0..many {
        pod.labels.insert(Stage::Operating.key(&format!("x{number}")), NOW.to_string());
        pod.labels.insert(Stage::PreChecked.key(&format!("x{number}")), NOW.to_string());
        pod.labels.insert(keys::permission_key(&format!("t{number}")), NOW.to_string());
        if number > 0 {
            pod.labels.insert(Stage::OperationType.key(&format!("z{number}")), format!("t{number}"));
        }
    }
    assert!(advance(None, &pod.view(), NOW).set.contains_key(&Stage::Preparing.key("x0")));
    bencher.bench(|| advance(None, &black_box(&pod).view(), NOW));
}

/// With the JSON patch made of it.
#[divan::bench(args = WRITES)]
fn mutating_patch(bencher: Bencher<'_, '_>, name: &str) {
    let (old, new) = of(name);
    let (old, new) = (old.pod(), new.pod());
    bencher.bench(|| on_update(Some(black_box(&old)), black_box(&new), NOW));
}

/// The validating webhook's judgement of the result, by a writer that is not Podward.
#[divan::bench(args = WRITES)]
fn review_one_write(bencher: Bencher<'_, '_>, name: &str) {
    let (old, mut new) = of(name);
    advance(Some(&old.view()), &new.view(), NOW).apply(&mut new.labels);
    let (old, new) = (old.pod(), new.pod());
    let policy = ReviewPolicy {
        strict: true,
        trusted: vec!["system:serviceaccount:podward:lifecycle-controller".to_owned()],
    };
    let writer = Writer { username: "system:serviceaccount:apps:operator", groups: &[] };
    assert!(review(Some(&old), &new, &writer, &policy).denials.is_empty());
    bencher.bench(|| review(Some(black_box(&old)), black_box(&new), &writer, &policy));
}

#[divan::bench(args = WRITES)]
fn plan_one_pod(bencher: Bencher<'_, '_>, name: &str) {
    let (_, new) = of(name);
    bencher.bench(|| plan_labels(&black_box(&new).view(), &NoRules, NOW));
}

#[divan::bench(args = WRITES)]
fn explain_one_pod(bencher: Bencher<'_, '_>, name: &str) {
    let (_, new) = of(name);
    bencher.bench(|| explain(&black_box(&new).view(), &NoRules, &[]));
}

#[divan::bench]
fn decode_pod_of_10_kb(bencher: Bencher<'_, '_>) {
    let text = operating().json().to_string();
    assert!((9_500..11_500).contains(&text.len()), "{} bytes", text.len());
    bencher
        .counter(divan::counter::BytesCount::of_str(&text))
        .bench(|| serde_json::from_str::<Pod>(black_box(&text)));
}
