//! The events of a binding, and of its pods that wait for the registry.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use podward_api::discovery_binding::BindingStatus;
use podward_core::hooks::HookPhase;

use super::super::calls::OpenCall;
use super::BindingTask;
use crate::index::BindingEntry;
use crate::model::{BindingEvent, BindingEvents, BindingFacts, Demand};

/// A question that waits for the registry for this time is reported on its pod.
const LONG: Duration = Duration::from_secs(10);
/// The greatest number of questions that are known to be reported.
const MAX_REPORTED: usize = 10_000;

impl BindingTask {
    /// Sends the events of the binding's present state.
    pub(super) fn send_events(&mut self, entry: &BindingEntry, wanted: usize, present: usize) {
        let facts = BindingFacts {
            rejected: self.rejected.clone(),
            unreachable: self.unreachable.clone(),
            held: self.held.as_ref().map(|held| {
                format!(
                    "{}; to release them: kubectl podward release -n {} discoverybinding/{}",
                    held.reason, self.key.namespace, self.key.name
                )
            }),
            lost: self.lost_pods(),
            wanted,
            present,
        };
        let now = self.shared.index.now();
        let before = || facts_of(entry.object.status.as_ref());
        let events = self.reported.binding.get_or_insert_with(|| BindingEvents::after(&before()));
        for event in events.of(&facts, now) {
            self.send_event(entry, event);
        }
    }

    /// Returns which pods are on lost nodes. `None` if none is.
    fn lost_pods(&self) -> Option<String> {
        let lost = || self.tracked.values().filter(|tracked| tracked.pod.demand == Demand::Lost);
        let one = lost().map(|tracked| &tracked.pod.name).min()?;
        Some(format!(
            "{} pods are on nodes that do not report, one of them is {one}; within the removal limit their instances are \
             removed, until the nodes report again",
            lost().count()
        ))
    }

    /// Reports that a comparison has found `missing` of the `shown` instances missing.
    pub(super) fn report_missing(&mut self, missing: usize, shown: usize) {
        let now = self.shared.index.now();
        let Some(entry) = self.shared.index.binding(&self.key) else { return };
        let event = self.reported.binding.as_mut().and_then(|events| events.missing(missing, shown, now));
        if let Some(event) = event {
            self.send_event(&entry, event);
        }
    }

    fn send_event(&self, entry: &BindingEntry, BindingEvent { is_warning, reason, note }: BindingEvent) {
        let object = ObjectReference {
            api_version: Some("podward.io/v1alpha1".to_owned()),
            kind: Some("DiscoveryBinding".to_owned()),
            name: Some(self.key.name.clone()),
            namespace: Some(self.key.namespace.clone()),
            uid: entry.object.uid(),
            ..ObjectReference::default()
        };
        match is_warning {
            true => self.shared.events.warning_about(object, reason, note),
            false => self.shared.events.normal_about(object, reason, note),
        }
    }

    /// Reports on the pod that a question waits for its registry, once for each question.
    pub(super) fn report_wait(&mut self, call: &OpenCall) {
        if call.asked.elapsed().unwrap_or_default() < LONG {
            return;
        }
        let uid = &call.pod.uid;
        let of_orphan = || {
            let is_orphan = self.orphans.iter().any(|orphan| orphan.uid == *uid);
            self.removal_problem.as_deref().filter(|_| is_orphan)
        };
        let problem = self.tracked.get(uid).and_then(|tracked| tracked.problem()).or_else(of_orphan);
        let (reason, problem) = match (&self.rejected, &self.unreachable, problem) {
            (Some(problem), ..) => ("RegistryNotUsable", problem.as_str()),
            (_, Some(problem), _) => ("RegistryUnreachable", problem.as_str()),
            (_, _, Some(problem)) => ("RegistryChangeFailed", problem),
            // It waits for the pod itself, or for clients.
            _ => return,
        };
        if self.reported.questions.get(uid) == Some(&call.question) {
            return;
        }
        let note = format!(
            "{} waits for the registry of DiscoveryBinding {}: {problem}",
            match call.phase {
                HookPhase::Complete => "adding the pod to traffic",
                _ => "removing the pod from traffic",
            },
            self.key
        );
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(call.pod.name.clone()),
            namespace: Some(call.pod.namespace.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        self.shared.events.warning_about(object, reason, note);
        if self.reported.questions.len() >= MAX_REPORTED {
            self.reported.questions.clear();
        }
        self.reported.questions.insert(uid.clone(), call.question.clone());
    }
}

/// Returns what the status says, which another replica may have reported.
fn facts_of(status: Option<&BindingStatus>) -> BindingFacts {
    let problem = |kind: &str| {
        let conditions = &status?.conditions;
        let found = conditions.iter().find(|it| it.type_ == kind && it.status == "False");
        found.map(|condition| condition.message.clone())
    };
    BindingFacts {
        rejected: problem("Accepted"),
        unreachable: problem("Reachable"),
        held: status.and_then(|status| status.held_removals.as_ref()).map(|held| held.reason.clone()),
        ..BindingFacts::default()
    }
}
