//! Pods in words, so that a row of a table reads like the table: `"SA operating/x operation-type/x=T"`.
//!
//! `<stage>/<id>` is a label of an operation (with `=<value>` where the value counts), `permission/<type>` a
//! permission, `SA` the label `service-available`; `stay-offline`, `creating` and `completing` are the labels of the
//! whole pod.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::keys::{self, Key, Stage};
use podward_core::{
    CheckResult, Checks, ConditionStatus, LabelChanges, Objection, Operations, Pod, PodFacts, PodView,
    UnixNanos, advance, gate_to_write, plan_labels,
};
use serde_json::{Value, json};

pub(crate) const CONSUMER: &str = "prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb";
pub(crate) const EXPECTS_CONSUMER: &str = r#"{"expectedFinalizers":{"Service/default/server":"prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"}}"#;
pub(crate) const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);
/// The time of the last change of the gate.
pub(crate) const GATE_SINCE: UnixNanos = UnixNanos(1_600_000_000_000_000_000);

/// The labels of an operation `x` of type `T` from one phase to the next.
pub(crate) const BEGUN: &str = "operating/x operation-type/x=T pre-check/x";
pub(crate) const PREPARING: &str = "operating/x operation-type/x=T permission/T pre-checked/x preparing/x";
pub(crate) const OPERATING: &str = "operating/x operation-type/x=T permission/T pre-checked/x operate/x";
pub(crate) const WAITING: &str = "operation-type/x=T permission/T pre-checked/x operate/x";
pub(crate) const OPERATED: &str = "operated/x done-operation-type/x=T post-check/x";
pub(crate) const COMPLETING: &str = "operated/x done-operation-type/x=T post-checked/x completing/x";

/// A pod. As a new one, it has opted in, and is in service as far as gate and readiness go.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotation: Option<String>,
    pub(crate) hook_requests: Option<String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) has_gate: bool,
    pub(crate) gate: Option<ConditionStatus>,
    pub(crate) ready: bool,
    pub(crate) ready_since: Option<UnixNanos>,
    pub(crate) terminating: bool,
}

/// In service: gate True and Ready.
pub(crate) fn on(words: &str) -> Fixture {
    let mut labels = labels(words);
    labels.insert(keys::CONTROL_LABEL.to_owned(), keys::CONTROL_VALUE.to_owned());
    Fixture {
        labels,
        annotation: None,
        hook_requests: None,
        finalizers: Vec::new(),
        has_gate: true,
        gate: Some(ConditionStatus::True),
        ready: true,
        ready_since: Some(GATE_SINCE),
        terminating: false,
    }
}

/// The pod as the API server stores it, with what `view` has of it: labels, expected and present finalizers, and the
/// conditions of the gate and Ready.
pub(crate) fn json_of(view: &PodView<'_>) -> Value {
    let condition = |name: &str, status: ConditionStatus, since: Option<UnixNanos>| json!({"type": name, "status": status.as_str(), "lastTransitionTime": since.map(UnixNanos::to_rfc3339)});
    let ready = if view.ready { ConditionStatus::True } else { ConditionStatus::False };
    let gate = view.gate.map(|gate| condition(keys::SERVICE_READY_GATE, gate, view.facts.gate_since));
    let conditions: Vec<Value> =
        gate.into_iter().chain([condition("Ready", ready, view.facts.ready_since)]).collect();
    let gates: Vec<Value> =
        view.has_gate.then(|| json!({"conditionType": keys::SERVICE_READY_GATE})).into_iter().collect();
    let annotations = [
        (keys::AVAILABLE_CONDITIONS, view.available_conditions),
        (keys::HOOK_REQUESTS, view.facts.hook_requests),
    ];
    let annotations: BTreeMap<&str, &str> =
        annotations.into_iter().filter_map(|(key, text)| Some((key, text?))).collect();
    json!({
        "metadata": {"labels": view.labels, "annotations": annotations, "finalizers": view.finalizers},
        "spec": {"readinessGates": gates},
        "status": {"conditions": conditions},
    })
}

/// Out of service: gate False and not Ready.
pub(crate) fn off(words: &str) -> Fixture {
    Fixture { gate: Some(ConditionStatus::False), ready: false, ..on(words) }
}

impl Fixture {
    pub(crate) fn gate(self, gate: Option<ConditionStatus>) -> Fixture {
        Fixture { gate, ..self }
    }

    /// Made without the readiness gate, so that nobody writes its condition.
    pub(crate) fn without_gate(self) -> Fixture {
        Fixture { has_gate: false, gate: None, ..self }
    }

    pub(crate) fn ready(self, ready: bool) -> Fixture {
        Fixture { ready, ..self }
    }

    /// The condition Ready is a second older than the gate.
    pub(crate) fn ready_before_gate(self) -> Fixture {
        Fixture { ready_since: Some(UnixNanos(GATE_SINCE.0 - 1_000_000_000)), ..self }
    }

    pub(crate) fn terminating(self) -> Fixture {
        Fixture { terminating: true, ..self }
    }

    /// A consumer holds the pod.
    pub(crate) fn held(mut self) -> Fixture {
        self.finalizers.push(CONSUMER.to_owned());
        self
    }

    /// The pod isn't available before its consumer holds it.
    pub(crate) fn expecting(self) -> Fixture {
        self.annotated(EXPECTS_CONSUMER)
    }

    pub(crate) fn annotated(self, text: &str) -> Fixture {
        Fixture { annotation: Some(text.to_owned()), ..self }
    }

    pub(crate) fn labelled(mut self, key: &str, value: &str) -> Fixture {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn view(&self) -> PodView<'_> {
        PodView {
            labels: &self.labels,
            available_conditions: self.annotation.as_deref(),
            finalizers: &self.finalizers,
            has_gate: self.has_gate,
            gate: self.gate,
            ready: self.ready,
            terminating: self.terminating,
            facts: PodFacts {
                hook_requests: self.hook_requests.as_deref(),
                gate_since: Some(GATE_SINCE),
                ready_since: self.ready_since,
                ..PodFacts::default()
            },
        }
    }

    pub(crate) fn json(&self) -> Value {
        json_of(&self.view())
    }

    pub(crate) fn pod(&self) -> Pod {
        serde_json::from_value(self.json()).unwrap()
    }

    pub(crate) fn operations(&self) -> Operations<'_> {
        Operations::parse(&self.labels)
    }

    /// What somebody's write makes of the pod. Of `write`, `+word` sets a label and `-word` takes it away; `gate=False`
    /// and `gate=True` write the condition; `-held` and `+held` are a consumer letting go and taking in; `ready` and
    /// `not-ready` are the kubelet's.
    pub(crate) fn after(&self, write: &str) -> Fixture {
        let mut fixture = self.clone();
        for word in write.split_whitespace() {
            match word {
                "gate=False" => fixture.gate = Some(ConditionStatus::False),
                "gate=True" => fixture.gate = Some(ConditionStatus::True),
                "-held" => fixture.finalizers.retain(|finalizer| finalizer != CONSUMER),
                "+held" => fixture.finalizers.push(CONSUMER.to_owned()),
                "ready" => fixture.ready = true,
                "not-ready" => fixture.ready = false,
                _ => {
                    if let Some(word) = word.strip_prefix('+') {
                        fixture.labels.extend(labels(word));
                    } else if let Some(word) = word.strip_prefix('-') {
                        let gone = fixture.labels.remove(&key(word));
                        assert!(gone.is_some(), "{word} was not there");
                    } else {
                        panic!("not a write: {word}");
                    }
                }
            }
        }
        fixture
    }

    /// The same write, with the mutating webhook in it. What it adds is itself at rest.
    pub(crate) fn written(&self, write: &str) -> Fixture {
        let mut fixture = self.after(write);
        let changes = advance(Some(&self.view()), &fixture.view(), NOW);
        changes.apply(&mut fixture.labels);
        let again = advance(Some(&self.view()), &fixture.view(), NOW);
        assert_eq!(again, LabelChanges::default(), "advance is idempotent: {write}");
        fixture
    }

    /// The controller's label write, without any webhook.
    pub(crate) fn reconciled(&self, checks: &dyn Checks) -> Fixture {
        let mut fixture = self.clone();
        plan_labels(&self.view(), checks, NOW).apply(&mut fixture.labels);
        fixture
    }

    /// What the controller writes to the gate.
    pub(crate) fn gate_write(&self) -> Option<ConditionStatus> {
        gate_to_write(&self.view(), &self.operations())
    }

    /// The labels of the protocol, in words.
    pub(crate) fn words(&self) -> BTreeSet<String> {
        self.labels.iter().filter_map(|(key, value)| word(key, value)).collect()
    }

    #[track_caller]
    pub(crate) fn expect(&self, words: &str, why: &str) {
        let wanted: BTreeSet<String> = words.split_whitespace().map(ToOwned::to_owned).collect();
        assert_eq!(self.words(), wanted, "{why}");
    }
}

fn key(word: &str) -> String {
    match word {
        "SA" => return keys::SERVICE_AVAILABLE.to_owned(),
        "stay-offline" => return keys::STAY_OFFLINE.to_owned(),
        "creating" => return keys::CREATING.to_owned(),
        "completing" => return keys::COMPLETING.to_owned(),
        _ => {}
    }
    let (kind, name) = word.split_once('/').unwrap_or_else(|| panic!("not a word: {word}"));
    if kind == "permission" {
        return keys::permission_key(name);
    }
    let stage = Stage::ALL.into_iter().find(|stage| stage.word() == kind);
    stage.unwrap_or_else(|| panic!("no such stage: {kind}")).key(name)
}

fn labels(words: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for word in words.split_whitespace() {
        let (word, value) = word.split_once('=').unwrap_or((word, "1600000000000000000"));
        labels.insert(key(word), value.to_owned());
    }
    labels
}

fn word(key: &str, value: &str) -> Option<String> {
    Some(match Key::parse(key) {
        Key::Stage(
            stage @ (Stage::OperationType | Stage::DoneOperationType | Stage::UndoOperationType),
            id,
        ) => {
            format!("{stage}/{id}={value}")
        }
        Key::Stage(stage, id) => format!("{stage}/{id}"),
        Key::Permission(operation_type) => format!("permission/{operation_type}"),
        Key::ServiceAvailable => "SA".to_owned(),
        Key::Malformed => key.to_owned(),
        Key::Other => match key {
            keys::STAY_OFFLINE => "stay-offline".to_owned(),
            keys::CREATING => "creating".to_owned(),
            keys::COMPLETING => "completing".to_owned(),
            _ => return None,
        },
    })
}

/// Checks that keep some waiting: pre-checks by type, post-checks by id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    pub(crate) types: &'static [&'static str],
    pub(crate) results: &'static [&'static str],
}

impl Checks for Hold {
    fn pre_check(&self, _: &str, operation_type: &str) -> CheckResult {
        answer(self.types.contains(&operation_type), "the budget is used up")
    }

    fn post_check(&self, id: &str, _: &str) -> CheckResult {
        answer(self.results.contains(&id), "the new version fails its probe")
    }

    fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
        Vec::new()
    }
}

fn answer(is_held: bool, reason: &str) -> CheckResult {
    if is_held { CheckResult::Wait(reason.to_owned()) } else { CheckResult::Pass }
}
