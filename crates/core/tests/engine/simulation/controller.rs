//! A replica of the lifecycle-controller: what it has seen, what it decides with the core, and the writes that are on
//! their way. All of it but its number is lost when the process ends.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podward_core::deletion::request::DeletionKind;
use podward_core::hooks::Hook;
use podward_core::keys::{DELETE_OPERATION, Stage};
use podward_core::{
    CheckResult, Checks, LabelChanges, Objection, Operations, PodHooks, PodPlan, PodView, UnixNanos, plan,
};

use super::deletion::{self, DeletionTurn};
use super::fault::Fault;
use super::hooks::{Hooks, KnownAnswers, Process};
use super::object::Object;
use super::server::Server;
use super::watch::WatchCache;
use crate::model::Blockable;

/// The types of operations of which one pod may have only one at a time.
pub(crate) const EXCLUSIVE: [&str; 2] = ["restart", "replace"];

/// What a reconciliation sends to the API server.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) seen: Arc<Object>,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Delete(DeletionKind),
    /// The whole plan as one write. The questions are asked afterwards.
    Write(Box<PodPlan>),
}

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) process: Process,
    pub(crate) is_leading: bool,
    pub(crate) watch: WatchCache,
    pub(crate) in_flight: Vec<Request>,
    pub(crate) answers: KnownAnswers,
    /// The responses to own requests.
    own: HashMap<&'static str, Arc<Object>>,
}

impl Controller {
    pub(crate) fn new(replica: usize, start: usize) -> Self {
        Controller {
            process: Process { replica, start },
            is_leading: false,
            watch: WatchCache::default(),
            in_flight: Vec::new(),
            answers: KnownAnswers::default(),
            own: HashMap::new(),
        }
    }

    /// Returns the newest version of the pod that the process knows.
    pub(crate) fn newest(&mut self, name: &'static str, fault: Option<Fault>) -> Option<Arc<Object>> {
        let watched = self.watch.get(name)?.clone();
        match self.own.get(name) {
            Some(own)
                if own.uid == watched.uid
                    && (own.pod.version > watched.pod.version
                        || fault == Some(Fault::OwnWritesHideNewer)) =>
            {
                Some(own.clone())
            }
            Some(_) => {
                self.own.remove(name);
                Some(watched)
            }
            None => Some(watched),
        }
    }

    /// A request of this process has returned this version.
    pub(crate) fn observed(&mut self, pod: Arc<Object>) {
        self.own.insert(pod.name, pod);
    }

    /// Decides about `pod`. Returns what to send, and when to look again.
    pub(crate) fn decide(
        &self,
        pod: &Arc<Object>,
        server: &Server,
        hooks: &Hooks,
        checks: Blockable,
    ) -> (Request, Option<UnixNanos>) {
        let step = match deletion::decide(pod, server) {
            DeletionTurn::Execute(kind) => {
                return (Request { seen: pod.clone(), what: What::Delete(kind) }, None);
            }
            DeletionTurn::Step(step) => step,
        };
        let now = server.now();
        let mut labels = pod.pod.labels.clone();
        step.changes.labels.apply(&mut labels);
        let stored = pod.view();
        let hidden: &[String] = &[];
        let sees_all = server.fault != Some(Fault::IgnoresFinalizers);
        let finalizers = if sees_all { stored.finalizers } else { hidden };
        let view = PodView { labels: &labels, finalizers, ..stored };
        let matching: &[Arc<Hook>] = &hooks.all;
        let answers = self.answers.about(&pod.uid, server.fault);
        let consumers = PodHooks { hooks: matching, known: &hooks.set, answers: &answers };
        let checks = PodChecks {
            blockable: checks,
            wait: step.wait.as_deref(),
            may_pass: may_pass(&view, server.fault),
            passed: Cell::default(),
        };
        let mut plan = plan(&view, &consumers, &checks, now);
        let mut after = labels.clone();
        plan.labels.apply(&mut after);
        plan.labels = LabelChanges::between(stored.labels, &after);
        let mut annotations: BTreeMap<_, _> = step.changes.annotations.clone();
        annotations.extend(std::mem::take(&mut plan.annotations));
        plan.annotations = annotations.into_iter().collect();
        let wake = plan.wake.into_iter().chain(step.wake).min();
        (Request { seen: pod.clone(), what: What::Write(Box::new(plan)) }, wake)
    }
}

/// Returns which exclusive operations may start. One whose operator has finished excludes no other, although it keeps
/// its labels until all operators of the pod have finished.
fn may_pass(pod: &PodView<'_>, fault: Option<Fault>) -> MayPass {
    let operations = Operations::parse(pod.labels);
    let is_granted = operations.iter().any(|(_, operation)| {
        operation.known_type().is_some_and(is_exclusive)
            && operation.has(Stage::Operating)
            && operation.has_any(&[Stage::PreChecked, Stage::Operate])
    });
    match is_granted {
        _ if fault == Some(Fault::IgnoresExclusion) => MayPass::All,
        true => MayPass::None,
        false => MayPass::One,
    }
}

fn is_exclusive(operation_type: &str) -> bool {
    EXCLUSIVE.contains(&operation_type)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MayPass {
    None,
    One,
    All,
}

/// The checks of one decision, as rules and the deletion make them.
struct PodChecks<'a> {
    blockable: Blockable,
    /// Why the deletion waits.
    wait: Option<&'a str>,
    may_pass: MayPass,
    /// The first letter of the id of the one exclusive operation that has passed.
    passed: Cell<Option<u8>>,
}

impl Checks for PodChecks<'_> {
    fn pre_check(&self, id: &str, operation_type: &str) -> CheckResult {
        if id == DELETE_OPERATION
            && let Some(why) = self.wait
        {
            return CheckResult::Wait(why.to_owned());
        }
        let found = self.blockable.pre_check(id, operation_type);
        if found != CheckResult::Pass || !is_exclusive(operation_type) {
            return found;
        }
        let key = id.bytes().next().unwrap_or_default();
        match self.may_pass {
            MayPass::All => CheckResult::Pass,
            MayPass::One if self.passed.get().is_none_or(|passed| passed == key) => {
                self.passed.set(Some(key));
                CheckResult::Pass
            }
            MayPass::One | MayPass::None => CheckResult::Wait("another operation excludes it".to_owned()),
        }
    }

    fn post_check(&self, id: &str, operation_type: &str) -> CheckResult {
        self.blockable.post_check(id, operation_type)
    }

    fn objections(&self, id: &str, operation_type: &str) -> Vec<Objection> {
        self.blockable.objections(id, operation_type)
    }
}
