//! Answers to the questions of the lifecycle-controller.

use std::time::Duration;

use podward_core::hooks::{EvidenceLevel, HookPhase};

use super::super::calls::{Answer, OpenCall, answer};
use super::BindingTask;
use crate::model::Binding;
use crate::sync::RegistryAccess;

impl BindingTask {
    /// Answers the questions that are done, and those that were kept open long enough.
    pub(super) fn answer(&mut self, binding: &Binding, access: &RegistryAccess) {
        let now = self.shared.index.now();
        let waits = access.cache_waits(binding);
        let mut open = Vec::new();
        for mut call in std::mem::take(&mut self.calls) {
            let uid = call.pod.uid.clone();
            let found = match self.tracked.get_mut(&uid) {
                Some(tracked) => {
                    if call.phase == HookPhase::Complete && !tracked.asked {
                        tracked.asked = true;
                        tracked.update(None, binding, access);
                    }
                    answer(call.phase, call.pod.never_ready, tracked, access, waits, binding, now)
                }
                None => self.answer_untracked(&mut call, binding, now),
            };
            match found {
                Answer::Pending { .. } if now < call.until => open.push(call),
                found => {
                    self.describe(&mut call, binding, access, waits, now);
                    if matches!(found, Answer::Pending { .. }) {
                        self.report_wait(&call);
                    }
                    self.send(call, found, now);
                }
            }
        }
        self.calls.extend(open);
    }

    /// Answers a question about a pod that the binding does not select, or that has ended. Only a comparison that began
    /// after the question shows that no instance is left.
    fn answer_untracked(&mut self, call: &mut OpenCall, binding: &Binding, now: Duration) -> Answer {
        let pending = |reason: &str| Answer::Pending { reason: reason.to_owned(), wake: None };
        if call.phase == HookPhase::Complete {
            return pending("the binding does not select the pod, or has not seen it yet");
        }
        let is_steered = binding.mode == podward_api::discovery_binding::BindingMode::Steer;
        if is_steered {
            return match call.phase {
                HookPhase::Release => Answer::Done {
                    level: EvidenceLevel::Assumed,
                    detail: "the application registers itself, and nothing else of the pod is kept"
                        .to_owned(),
                },
                _ => pending("the binding does not select the pod, or has not seen it yet"),
            };
        }
        self.released.insert(call.pod.uid.clone());
        let is_clean = self.compared.is_some_and(|at| at >= call.since)
            && self.unreachable.is_none()
            && !self.orphans.iter().any(|orphan| orphan.uid == call.pod.uid);
        if is_clean {
            let detail = "no address of the registry shows an instance of the pod".to_owned();
            return Answer::Done { level: EvidenceLevel::Proven, detail };
        }
        if self.compared.is_none_or(|at| at < call.since) {
            self.comparison_due = self.comparison_due.min(now);
        }
        pending("the registry is searched for an instance of the pod")
    }

    /// Answers questions while none can be done. `reason` says why.
    pub(super) fn answer_pending(&mut self, reason: &str) {
        let now = self.shared.index.now();
        for call in std::mem::take(&mut self.calls) {
            if now < call.until {
                self.calls.push(call);
                continue;
            }
            self.report_wait(&call);
            self.send(call, Answer::Pending { reason: reason.to_owned(), wake: None }, now);
        }
    }

    fn send(&self, call: OpenCall, found: Answer, now: Duration) {
        let phase = match call.phase {
            HookPhase::PreCheck => "pre-check",
            HookPhase::Prepare => "prepare",
            HookPhase::PostCheck => "post-check",
            HookPhase::Complete => "complete",
            HookPhase::Release => "release",
        };
        match &found {
            Answer::Done { level, detail } => {
                let evidence = match level {
                    EvidenceLevel::Proven => "proven",
                    EvidenceLevel::Bounded => "bounded",
                    EvidenceLevel::Assumed => "assumed",
                    EvidenceLevel::TimedOut => "timed-out",
                };
                self.shared.metrics.answered(phase, "done", evidence);
                tracing::info!(
                    binding = %self.key, phase, pod = call.pod.name, evidence, detail, "the question is answered"
                );
            }
            Answer::Pending { .. } => self.shared.metrics.answered(phase, "pending", "none"),
        }
        call.send(found, now);
    }
}
