//! Labels, annotations and conditions of a pod, in two versions: everything that webhooks, controllers and the gRPC
//! server do with a pod without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use podward_api::{LifecycleHook, PodTransitionRule};
use podward_core::busy::{BusyChecks, BusyClaim};
use podward_core::deletion::hold::{DeletionAttempt, HoldFacts, NodeState, RecordOutcome, answer, hold};
use podward_core::deletion::request::{self, DeletionKind, DeletionRequest};
use podward_core::hooks::{
    Evidence, EvidenceLevel, Hook, HookAnswer, HookAnswers, HookQuestion, HookSet, PodHooks,
};
use podward_core::release::{OtherFinalizers, ReleasePod, release};
use podward_core::rules::{NoWebhookAnswers, RuleSet, check_requests};
use podward_core::{
    NoRules, Operations, Pod, PodView, ReviewPolicy, UnixNanos, Writer, advance, explain, on_create,
    on_update, plan, review, review_raw,
};
use podward_kube_util::{CachedPod, deletion_cost_changes, holds_deletion};
use podward_lifecycle_grpc::describe;
use serde::Deserialize;
use serde_json::json;

use super::samples;
use crate::input::Input;
use crate::outcome::Outcome;
use crate::target::{Format, Target};

const NOW: UnixNanos = UnixNanos(samples::NOW);
const CONTROLLER: &str = "system:serviceaccount:podward-system:lifecycle-controller";
const MAX_BUSY: Duration = Duration::from_secs(3600);
/// A message names parts of the pod, each a few times.
const MAX_GROWTH: usize = 16;
const MAX_MESSAGE: usize = 16 * 1024;

#[derive(Deserialize)]
struct Versions<T> {
    old: Option<T>,
    new: T,
}

pub(super) fn target() -> Target {
    let pods = samples::pods();
    let mut seeds = Vec::new();
    for (number, pod) in pods.iter().enumerate() {
        let old = &pods[number.saturating_sub(1)];
        for variant in [0, 1, 2] {
            seeds.push(Input::new(variant, json!({"old": old, "new": pod}).to_string()));
        }
        seeds.push(Input::new(3, json!({"new": pod}).to_string()));
    }
    let cluster = Cluster::new();
    Target::new("pod", Format::Json, seeds, move |input| cluster.handle(input))
}

/// The hooks and rules of a cluster.
struct Cluster {
    hooks: HookSet,
    rules: Option<RuleSet>,
}

/// What hooks answer: it depends on the question, and on the variant of the input.
struct Answers(u8);

impl HookAnswers for Answers {
    fn answer(&self, question: &HookQuestion) -> Option<HookAnswer> {
        let number = usize::from(self.0) + question.hook.len() + question.operations.len();
        Some(match number % 4 {
            0 => HookAnswer::Open { message: "3 connections".to_owned() },
            1 => HookAnswer::Rejected { reason: "not now".to_owned() },
            2 => HookAnswer::Done(Evidence { level: EvidenceLevel::Proven, detail: "seen".to_owned() }),
            _ => return None,
        })
    }
}

impl Cluster {
    fn new() -> Self {
        let hooks = samples::HOOKS.map(|name| serde_json::from_value::<LifecycleHook>(samples::hook(name)));
        let hooks = hooks.into_iter().flatten().filter_map(|hook| hook.to_hook().ok());
        let rule = serde_json::from_value::<PodTransitionRule>(samples::rule()).ok();
        Self { hooks: HookSet::new(hooks), rules: rule.map(|rule| rule.to_rule_set()) }
    }

    fn handle(&self, input: &Input) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let limit = input.body.len() * MAX_GROWTH + MAX_MESSAGE;
        match serde_json::from_slice::<Versions<Pod>>(&input.body) {
            Ok(Versions { old, new }) => admitted(old.as_ref(), &new, limit, &mut outcome)?,
            Err(error) => outcome.text(&error.to_string()),
        }
        match serde_json::from_slice::<Versions<CachedPod>>(&input.body) {
            Ok(Versions { new, .. }) => self.controlled(&new, input.variant, limit, &mut outcome)?,
            Err(error) => outcome.text(&error.to_string()),
        }
        Ok(outcome)
    }

    /// What the lifecycle-controller does.
    fn controlled(
        &self,
        pod: &CachedPod,
        variant: u8,
        limit: usize,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let view = pod.view();
        let busy = BusyChecks::new(&view, MAX_BUSY, NOW, &NoRules);
        let hooks: Vec<Arc<Hook>> = self.hooks.matching(view.labels, &BTreeMap::new()).cloned().collect();
        let answers = Answers(variant);
        let consumers = PodHooks { hooks: &hooks, known: &self.hooks, answers: &answers };
        let mut planned = plan(&view, &consumers, &busy, NOW);
        let explanation = planned.explain(&view, &busy);
        bounded(&explanation.message, limit)?;
        outcome.size(busy.record(&view, &mut planned).len());
        let limits = busy.limits();
        outcome.add((explanation.reason, planned.labels.set.len(), planned.labels.remove.len()));
        outcome.add((planned.open.len(), planned.finalizers.add.len(), planned.finalizers.remove.len()));
        outcome.add((limits.change(&view).is_some(), planned.hook_reports.len(), planned.refused.len()));
        self.repeated(&view, &planned, &consumers)?;

        let request = pod.deletion_request();
        let marks = pod.carried(request.as_ref());
        outcome.text(&format!("{:?}", request::intent(&marks)));
        let new = DeletionRequest::new(DeletionKind::Delete, "jane", NOW);
        if let Some(request) = &request {
            outcome.add(request.joined_by(&new, true).is_some());
            if DeletionRequest::parse(&request.to_text()).as_ref() != Some(request) {
                return Err("a deletion request that is written and read again is another one".to_owned());
            }
            outcome.size(request::postpone(&marks, request, NOW).labels.set.len());
        }
        outcome.size(request::record(&marks, new, variant.is_multiple_of(2)).annotations.len());
        outcome.size(request::cancel(&marks).labels.remove.len());
        outcome.size(request::begin(&marks, NOW).labels.set.len());
        outcome.add(holds_deletion(pod, MAX_BUSY, NOW));
        outcome.size(deletion_cost_changes(pod, variant.is_multiple_of(2), NOW).len());

        let skip = pod.skipped_rules();
        for check in check_requests(view.labels) {
            outcome.add(check.since().signum());
            let Some(rules) = &self.rules else { continue };
            let decision = rules.evaluate(&pod.subject(&skip), &check, &NoWebhookAnswers);
            outcome.add((decision.refusals.len(), decision.budgets.len(), decision.objections.len()));
        }
        let described = describe(pod);
        bounded(&described.message, limit)?;
        outcome.add((described.in_service, described.operations.len(), described.consumers.len()));
        self.released(&view, outcome);
        Ok(())
    }

    /// With the same answers, the plan for a pod that carries the plan's labels and finalizers takes no other way.
    fn repeated(
        &self,
        view: &PodView<'_>,
        planned: &podward_core::PodPlan,
        consumers: &PodHooks<'_>,
    ) -> Result<(), String> {
        let mut labels = view.labels.clone();
        planned.labels.apply(&mut labels);
        let after = PodView { labels: &labels, ..*view };
        let operations = Operations::parse(&labels);
        if operations.any_live() && !after.is_controlled() && view.is_controlled() {
            return Err("the plan opts a pod out".to_owned());
        }
        drop(plan(&after, consumers, &NoRules, NOW));
        Ok(())
    }

    /// What an uninstall does.
    fn released(&self, view: &PodView<'_>, outcome: &mut Outcome) {
        let annotations = BTreeMap::from([
            ("podward.io/evidence".to_owned(), view.facts.evidence.unwrap_or_default().to_owned()),
            ("podward.io/hook-requests".to_owned(), view.facts.hook_requests.unwrap_or_default().to_owned()),
        ]);
        let subject =
            ReleasePod { pod: *view, annotations: &annotations, has_condition: true, is_finished: false };
        let released = release(&subject, OtherFinalizers::Keep);
        outcome.add((released.labels.len(), released.finalizers.len(), released.opens_gate));
    }
}

fn bounded(message: &str, limit: usize) -> Result<(), String> {
    (message.len() <= limit).then_some(()).ok_or_else(|| format!("a message of {} bytes", message.len()))
}

/// What the webhooks do.
fn admitted(old: Option<&Pod>, new: &Pod, limit: usize, outcome: &mut Outcome) -> Result<(), String> {
    let groups = ["system:authenticated".to_owned()];
    for (username, strict) in [("jane", false), ("system:kube-scheduler", true), (CONTROLLER, true)] {
        let policy = ReviewPolicy { strict, trusted: vec![CONTROLLER.to_owned()] };
        let writer = Writer { username, groups: &groups };
        for found in [review_raw(old, new, &writer, &policy), review(old, new, &writer, &policy)] {
            outcome.add((found.denials.len(), found.warnings.len()));
            found.denials.iter().chain(&found.warnings).try_for_each(|text| bounded(text, limit))?;
        }
    }
    outcome.size(on_create(new, true, &samples::HOOKS, NOW).0.len());
    outcome.size(on_update(old, new, NOW).0.len());
    let view = new.view();
    let changes = advance(old.map(Pod::view).as_ref(), &view, NOW);
    outcome.add((changes.set.len(), changes.remove.len()));
    outcome.text(explain(&view, &NoRules, &[]).reason);
    outcome.add(BusyClaim::of(&view).at(NOW).is_some());

    let request = new.deletion_request();
    for node in [NodeState::Unknown, NodeState::Gone, NodeState::NotReadySince(UnixNanos(i64::MIN))] {
        let facts = HoldFacts {
            now: NOW,
            node,
            unreachable_limit: Duration::from_secs(60),
            namespace_terminating: false,
        };
        for kind in [DeletionKind::Delete, DeletionKind::Evict] {
            let attempt = DeletionAttempt { kind, user: "jane", dry_run: false };
            let verdict = hold(new, &attempt, &facts);
            outcome.text(&format!("{:?}", verdict.reason()));
        }
    }
    if let Some(request) = &request {
        bounded(&answer(new, DeletionKind::Delete, RecordOutcome::Recorded(request)), limit)?;
    }
    Ok(())
}
