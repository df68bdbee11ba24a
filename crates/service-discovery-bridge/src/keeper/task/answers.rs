//! Answers to the questions of the lifecycle-controller.

use std::time::Duration;

use podward_api::discovery_binding::BindingMode;
use podward_core::hooks::{EvidenceLevel, HookPhase};
use podward_proto::v1;
use podward_registries::ServiceKey;

use super::super::calls::{Answer, OpenCall, answer};
use super::super::tracked::IN_DOUBT;
use super::BindingTask;
use crate::model::{Binding, CacheWaits, Demand, Orphan, Suspect};
use crate::sync::RegistryAccess;

impl BindingTask {
    /// Answers the questions that are done, and those that were kept open long enough. Answers none if another replica may be
    /// responsible for the binding.
    pub(super) fn answer(&mut self, binding: &Binding, access: &RegistryAccess) {
        if !self.fence.is_open() {
            return;
        }
        let now = self.shared.index.now();
        let waits = access.cache_waits(binding);
        let mut open = Vec::new();
        for mut call in std::mem::take(&mut self.calls) {
            let uid = call.pod.uid.clone();
            let is_leaving = self.tracked.get(&uid).is_some_and(|it| it.pod.demand == Demand::Left);
            if is_leaving && call.phase != HookPhase::Complete {
                self.released.entry(uid.clone()).or_default();
            }
            let found = match self.tracked.get_mut(&uid) {
                _ if call.phase != HookPhase::Complete && never_had_address(&call.pod) => Answer::Done {
                    level: if call.pod.node_name.is_empty() {
                        EvidenceLevel::Proven
                    } else {
                        EvidenceLevel::Assumed
                    },
                    detail: "the pod has had no address that a registry could show".to_owned(),
                },
                Some(tracked) => {
                    if call.phase == HookPhase::Complete && !tracked.asked {
                        tracked.asked = true;
                        tracked.update(None, binding, binding, access);
                    }
                    answer(call.phase, tracked, access, waits, binding, now)
                }
                None => self.answer_untracked(&call, binding, access, waits, now),
            };
            let found = if call.phase == HookPhase::Complete { found } else { self.with_orphan(&uid, found) };
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

    /// Returns the answer to a question about a removal. If it is not done, it names an instance that is still there.
    fn with_orphan(&self, uid: &str, found: Answer) -> Answer {
        match (self.orphans.iter().find(|orphan| orphan.uid == uid), found) {
            (Some(orphan), Answer::Pending { wake, .. }) => {
                let Orphan { service, instance, .. } = orphan;
                let why =
                    self.removal_problem.iter().map(|problem| format!("; the last error was: {problem}"));
                let reason = format!(
                    "service {} still has {}:{}, which is to be deregistered{}",
                    service.name,
                    instance.host,
                    instance.port,
                    why.collect::<String>()
                );
                Answer::Pending { reason, wake }
            }
            (_, found) => found,
        }
    }

    /// Answers a question about a pod that the binding does not select, or that has ended. Only a comparison that began
    /// after the question shows that no instance is left, and only one after the wait for clients ends a removal.
    fn answer_untracked(
        &mut self,
        call: &OpenCall,
        binding: &Binding,
        access: &RegistryAccess,
        waits: CacheWaits,
        now: Duration,
    ) -> Answer {
        let pending = |reason: &str, wake| Answer::Pending { reason: reason.to_owned(), wake };
        if call.phase == HookPhase::Complete {
            return pending("the binding does not select the pod, or has not seen it yet", None);
        }
        if binding.mode == BindingMode::Steer {
            return match call.phase {
                HookPhase::Release => Answer::Done {
                    level: EvidenceLevel::Assumed,
                    detail: "the application registers itself, and nothing else of the pod is kept"
                        .to_owned(),
                },
                _ => pending("the binding does not select the pod, or has not seen it yet", None),
            };
        }
        let hosts = || call.pod.ips.iter().map(String::as_str).chain([""]);
        let may_be = |suspect: &&Suspect| hosts().any(|host| suspect.may_be_of(&call.pod.uid, host));
        if let Some(suspect) = self.suspects.iter().find(may_be) {
            self.released.insert(call.pod.uid.clone(), None);
            return pending(&suspect.problem, None);
        }
        let is_clean =
            self.unreachable.is_none() && !self.orphans.iter().any(|orphan| orphan.uid == call.pod.uid);
        let compared = self.compared.filter(|_| is_clean);
        // What a comparison finds counts when no registration of a pod that has left the binding may take effect any more.
        let since = call.since.max(self.in_doubt_until);
        let found = compared.filter(|at| *at >= since).map(|_| now);
        let clean_since = self.released.entry(call.pod.uid.clone()).or_default();
        *clean_since = clean_since.filter(|_| is_clean).or(found);
        let wait = match call.phase {
            HookPhase::Prepare => waits.list_lag + waits.clients,
            _ => Duration::ZERO,
        };
        let wanted = clean_since.map_or(since, |clean| since.max(clean + wait));
        if let Some(at) = compared
            && at >= wanted
        {
            if !access.registry.can_read() {
                let detail =
                    "the binding does not select the pod, and the registry cannot be read".to_owned();
                return Answer::Done { level: EvidenceLevel::Assumed, detail };
            }
            let detail = "no address of the registry shows an instance of the pod".to_owned();
            // The pod may have had another service than it has now.
            let is_searched = access.registry.can_list()
                || binding.service_without_pods().is_some()
                || self.left.contains(&call.pod.uid);
            if !is_searched {
                let detail = format!(
                    "{detail}, but the service that it had is not known, and the registry cannot list services"
                );
                return Answer::Done { level: EvidenceLevel::Assumed, detail };
            }
            return match wait.is_zero() {
                true => Answer::Done { level: EvidenceLevel::Proven, detail },
                false => {
                    let detail =
                        format!("{detail}; waited {} s for clients that have read it before", wait.as_secs());
                    Answer::Done { level: EvidenceLevel::Bounded, detail }
                }
            };
        }
        // Otherwise the next comparison, which reads the whole registry, is due when it may find something else.
        if is_clean {
            self.comparison_due = self.comparison_due.min(wanted.max(now));
        }
        match wanted > now {
            true if now < self.in_doubt_until => pending(IN_DOUBT, Some(wanted)),
            true => pending(
                "no address of the registry shows an instance of the pod; clients may use what they have read before",
                Some(wanted),
            ),
            false => pending("the registry is searched for an instance of the pod", None),
        }
    }

    /// Returns the service that a pod has by the binding although it is not tracked, in its canonical form. `None` if it is
    /// tracked, or not known.
    pub(super) fn service_of_untracked(
        &self,
        binding: &Binding,
        access: &RegistryAccess,
        uid: &str,
    ) -> Option<ServiceKey> {
        if self.tracked.contains_key(uid) {
            return None;
        }
        let pod = self.shared.index.pod(&self.key.namespace, uid)?;
        let desired = binding.desired(&pod, &access.cluster).ok()?;
        Some(access.registry.canonical(desired.service))
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

/// Returns true if there was nothing to register: the pod has no address, and was never Ready.
fn never_had_address(pod: &v1::Pod) -> bool {
    pod.ips.is_empty() && pod.never_ready
}
