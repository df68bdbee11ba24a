//! A pod with everybody around it: operators, kubelet, a traffic loop, the controller, and webhooks that may be away.
//! Every write goes through [`Model::write`], which holds the safety properties.

use std::collections::BTreeMap;

use podward_core::keys::{self, Key, Stage};
use podward_core::{
    CheckResult, Checks, ConditionStatus, LabelChanges, Objection, Operations, PodFacts, PodPlan, PodView,
    UnixNanos, advance,
};

use crate::hook_model::Hooks;
use crate::safety;

pub(crate) const CONSUMER: &str = "prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb";
pub(crate) const EXPECTED: &str = r#"{"expectedFinalizers":{"Service/default/server":"prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb"}}"#;

/// What is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) has_gate: bool,
    pub(crate) gate: Option<ConditionStatus>,
    pub(crate) containers_ready: bool,
    pub(crate) finished: bool,
    pub(crate) ready: bool,
    pub(crate) terminating: bool,
    pub(crate) expected: Option<String>,
    pub(crate) evidence: Option<String>,
    pub(crate) asked: Option<String>,
    pub(crate) refused: Option<String>,
    pub(crate) times: Times,
}

/// When conditions last changed, in whole seconds as conditions have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) created: Option<UnixNanos>,
    pub(crate) gate: Option<UnixNanos>,
    pub(crate) ready: Option<UnixNanos>,
    pub(crate) containers_ready: Option<UnixNanos>,
    pub(crate) terminating: Option<UnixNanos>,
}

pub(crate) fn whole_seconds(time: UnixNanos) -> UnixNanos {
    UnixNanos(time.0 / 1_000_000_000 * 1_000_000_000)
}

impl Stored {
    pub(crate) fn view(&self) -> PodView<'_> {
        PodView {
            labels: &self.labels,
            available_conditions: self.expected.as_deref(),
            finalizers: &self.finalizers,
            has_gate: self.has_gate,
            gate: self.gate,
            ready: self.ready,
            terminating: self.terminating,
            facts: PodFacts {
                containers_ready: self.containers_ready,
                unscheduled: false,
                finished: self.finished,
                evidence: self.evidence.as_deref(),
                hook_requests: self.asked.as_deref(),
                result_refused: self.refused.as_deref(),
                busy_until: None,
                busy_reason: None,
                busy_limits: None,
                deletion_cost: None,
                idle_deletion_cost: None,
                deletion_request: None,
                created_at: self.times.created,
                gate_since: self.times.gate,
                ready_since: self.times.ready,
                containers_ready_since: self.times.containers_ready,
                terminating_since: self.times.terminating,
            },
        }
    }

    pub(crate) fn has(&self, stage: Stage, id: &str) -> bool {
        self.labels.contains_key(&stage.key(id))
    }

    pub(crate) fn protocol_labels(&self) -> Vec<&str> {
        self.labels.keys().map(String::as_str).filter(|key| !matches!(Key::parse(key), Key::Other)).collect()
    }

    /// Applies `plan` as one write, as the controller makes it.
    pub(crate) fn carry(&mut self, plan: &PodPlan) {
        plan.labels.apply(&mut self.labels);
        plan.finalizers.apply(&mut self.finalizers);
        if plan.gate.is_some() && plan.gate != self.gate {
            (self.gate, self.times.gate) = (plan.gate, Some(whole_seconds(plan.now)));
        }
        for (key, text) in &plan.annotations {
            self.annotate(key, text.clone());
        }
    }

    /// Writes an annotation. Returns false if this model does not have it.
    pub(crate) fn annotate(&mut self, key: &str, text: Option<String>) -> bool {
        let field = match key {
            keys::AVAILABLE_CONDITIONS => &mut self.expected,
            keys::EVIDENCE => &mut self.evidence,
            keys::HOOK_REQUESTS => &mut self.asked,
            keys::RESULT_REFUSED => &mut self.refused,
            _ => return false,
        };
        *field = text;
        true
    }

    pub(crate) fn holds_gate(&self) -> bool {
        Operations::parse(&self.labels).iter().any(|(_, op)| op.has_any(&[Stage::Preparing, Stage::Operate]))
    }
}

/// Checks that somebody can block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Blockable {
    pub(crate) pre: bool,
    pub(crate) post: bool,
    /// A rule whose refusals operators are told of says no. While `post` alone is set, it says nothing.
    pub(crate) refuses: bool,
}

impl Checks for Blockable {
    fn pre_check(&self, _: &str, _: &str) -> CheckResult {
        if self.pre { CheckResult::Wait("blocked".to_owned()) } else { CheckResult::Pass }
    }

    fn post_check(&self, _: &str, _: &str) -> CheckResult {
        match self.post || self.refuses {
            true => CheckResult::Wait("blocked".to_owned()),
            false => CheckResult::Pass,
        }
    }

    fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
        let reason = self.refuses.then(|| "too many errors".to_owned());
        let by = Objection::name_of_rule("web", "errors");
        if self.post || self.refuses { vec![Objection { by, reason }] } else { Vec::new() }
    }
}

pub(crate) struct Model {
    pub(crate) pod: Stored,
    pub(crate) history: Vec<Stored>,
    pub(crate) webhook: bool,
    pub(crate) checks: Blockable,
    pub(crate) hooks: Hooks,
    pub(crate) now: i64,
}

impl Model {
    /// A pod in service.
    pub(crate) fn in_service(has_gate: bool, expects_consumer: bool) -> Model {
        let mut model = Model::created(has_gate, expects_consumer);
        model.settle();
        assert_eq!(model.pod.protocol_labels(), [keys::SERVICE_AVAILABLE]);
        model
    }

    /// A pod that was just made.
    pub(crate) fn created(has_gate: bool, expects_consumer: bool) -> Model {
        let labels = [(keys::CONTROL_LABEL, "true"), ("app", "web"), (keys::CREATING, "1")];
        let pod = Stored {
            version: 1,
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            finalizers: vec!["example.com/not-ours".to_owned()],
            has_gate,
            gate: None,
            containers_ready: true,
            finished: false,
            ready: false,
            terminating: false,
            expected: expects_consumer.then(|| EXPECTED.to_owned()),
            evidence: None,
            asked: None,
            refused: None,
            times: Times { created: Some(UnixNanos(1_700_000_000_000_000_000)), ..Times::default() },
        };
        Model {
            history: vec![pod.clone()],
            pod,
            webhook: true,
            checks: Blockable::default(),
            hooks: Hooks::default(),
            now: 1_700_000_000_000_000_000,
        }
    }

    pub(crate) fn now(&mut self) -> UnixNanos {
        // A microsecond: checks that begin in the same one are one question to a hook.
        self.now += 1_000;
        UnixNanos(self.now)
    }

    /// One write of anybody, through the webhook if it is there. `change` has seen `self.pod`.
    pub(crate) fn write(&mut self, change: impl FnOnce(&mut Stored)) {
        let old = self.pod.clone();
        let mut new = old.clone();
        change(&mut new);
        let now = self.now();
        if self.webhook {
            let changes = advance(Some(&old.view()), &new.view(), now);
            changes.apply(&mut new.labels);
            let again = advance(Some(&old.view()), &new.view(), UnixNanos(0));
            assert_eq!(again, LabelChanges::default(), "advance is idempotent: {new:?}");
            // Without the webhook the controller sees to it; see `check_refusals`.
            assert_refused_are_judged(&new);
        }
        if new == old {
            return;
        }
        new.version += 1;
        if let Err(violation) = safety::check(&old, &new).and_then(|()| safety::check_others(&old, &new)) {
            panic!("{violation}: {old:?} -> {new:?}");
        }
        self.history.push(new.clone());
        self.pod = new;
    }

    /// One round of the controller, on `seen`, which may be old: a write on an old version is refused, and nobody is
    /// asked then. Returns whether it wanted to write.
    pub(crate) fn reconcile(&mut self, seen: &Stored) -> bool {
        let now = self.now();
        let plan = self.hooks.plan(&seen.view(), &self.checks, now);
        if seen.version == self.pod.version {
            self.carry_out(&plan);
        }
        !plan.is_empty()
    }

    pub(crate) fn reconcile_latest(&mut self) -> bool {
        let seen = self.pod.clone();
        self.reconcile(&seen)
    }

    /// The kubelet's status write.
    pub(crate) fn kubelet(&mut self) {
        let on = !self.pod.has_gate || self.pod.gate == Some(ConditionStatus::True);
        let ready = on && self.pod.containers_ready;
        let now = whole_seconds(self.now());
        self.write(|pod| {
            if pod.ready != ready {
                (pod.ready, pod.times.ready) = (ready, Some(now));
            }
        });
    }

    /// The plain recipe of a traffic controller: Ready and gate not off, then hold the pod; otherwise let go.
    pub(crate) fn traffic(&mut self) {
        let on = self.pod.ready && self.pod.gate != Some(ConditionStatus::False);
        self.write(|pod| {
            pod.finalizers.retain(|finalizer| finalizer != CONSUMER);
            if on && !pod.terminating {
                pod.finalizers.push(CONSUMER.to_owned());
            }
        });
    }

    pub(crate) fn begin(&mut self, id: &str, operation_type: &str) {
        let now = self.now();
        self.write(|pod| {
            pod.labels.insert(Stage::Operating.key(id), now.to_string());
            pod.labels.insert(Stage::OperationType.key(id), operation_type.to_owned());
        });
    }

    /// The stock Finish.
    pub(crate) fn finish(&mut self, id: &str) {
        self.write(|pod| {
            pod.labels.remove(&Stage::Operating.key(id));
        });
    }

    pub(crate) fn finish_both(&mut self, id: &str) {
        self.write(|pod| {
            pod.labels.remove(&Stage::Operating.key(id));
            pod.labels.remove(&Stage::OperationType.key(id));
        });
    }

    pub(crate) fn undo(&mut self, id: &str, operation_type: &str) {
        self.write(|pod| {
            pod.labels.insert(Stage::UndoOperationType.key(id), operation_type.to_owned());
        });
    }

    /// Lets kubelet, traffic loop and controller work until nobody has anything to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..12 {
            let before = self.pod.clone();
            self.reconcile_latest();
            self.kubelet();
            self.traffic();
            if self.pod == before {
                return;
            }
        }
        panic!("the pod does not come to rest: {:#?}", self.pod);
    }
}

/// Only a result that waits to be judged can be refused.
pub(crate) fn assert_refused_are_judged(pod: &Stored) {
    for (id, operation) in Operations::parse(&pod.labels).iter() {
        let is_judged = operation.has(Stage::Operated)
            && !operation.has_any(&[Stage::Operating, Stage::PostChecked, Stage::Completing]);
        assert!(is_judged || !operation.has(Stage::Rollback), "{id} is refused: {pod:?}");
    }
}
