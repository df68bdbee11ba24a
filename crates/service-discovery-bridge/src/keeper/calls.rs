//! The open questions of the lifecycle-controller, and their answers.

use std::time::{Duration, SystemTime};

use podward_core::hooks::{EvidenceLevel, HookPhase};
use podward_proto::v1::{self, HandleRequest, HandleResponse};
use tokio::sync::mpsc;

use super::question_span::QuestionSpan;
use super::tracked::{SyncState, TrackedPod};
use crate::model::{Binding, CacheWaits, Presence, ShownPod, Verdict, verdict};
use crate::sync::RegistryAccess;

/// How long a question is kept open until its answer is DONE. It is much less than the timeout of calls.
const HOLD: Duration = Duration::from_secs(2);
/// The pause until the next call, after an answer PENDING.
const MIN_RETRY: Duration = Duration::from_millis(250);
const MAX_RETRY: Duration = Duration::from_secs(2);

/// A question that is not answered yet.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) id: u64,
    pub(crate) phase: HookPhase,
    pub(crate) pod: v1::Pod,
    /// Identifies the question in all its calls.
    pub(crate) question: String,
    /// When it was asked first, by the clock of the lifecycle-controller.
    pub(crate) asked: SystemTime,
    /// When it arrived.
    pub(crate) since: Duration,
    /// When PENDING is answered.
    pub(crate) until: Duration,
    /// Its span, if traces are wanted.
    pub(crate) span: Option<QuestionSpan>,
    answers: mpsc::Sender<v1::AttachAnswer>,
}

/// The answer to a question at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done {
        level: EvidenceLevel,
        detail: String,
    },
    /// It may change by itself at `wake`.
    Pending {
        reason: String,
        wake: Option<Duration>,
    },
}

impl OpenCall {
    /// Returns the question of `call`. `None` if it is not one that this hook answers, or has no pod.
    pub(crate) fn new(
        id: u64,
        request: HandleRequest,
        answers: mpsc::Sender<v1::AttachAnswer>,
        now: Duration,
    ) -> Option<Self> {
        let phase = match request.phase() {
            v1::Phase::Prepare => HookPhase::Prepare,
            v1::Phase::Complete => HookPhase::Complete,
            v1::Phase::Release => HookPhase::Release,
            v1::Phase::PreCheck | v1::Phase::PostCheck | v1::Phase::Unspecified => return None,
        };
        let asked = request.asked_at.and_then(|at| SystemTime::try_from(at).ok());
        let asked = asked.unwrap_or_else(SystemTime::now);
        let question = request.question_id;
        Some(Self {
            id,
            phase,
            question,
            asked,
            pod: request.pod?,
            since: now,
            until: now + HOLD,
            span: None,
            answers,
        })
    }

    /// Sends the answer.
    pub(crate) fn send(mut self, answer: Answer, now: Duration) {
        let response = match answer {
            Answer::Done { level, detail } => HandleResponse {
                outcome: v1::Outcome::Done.into(),
                evidence: Some(v1::Evidence { level: wire(level).into(), detail }),
                ..HandleResponse::default()
            },
            Answer::Pending { reason, wake } => {
                let delay =
                    wake.map_or(MIN_RETRY, |wake| wake.saturating_sub(now).clamp(MIN_RETRY, MAX_RETRY));
                HandleResponse {
                    outcome: v1::Outcome::Pending.into(),
                    message: reason,
                    retry_after: prost_types::Duration::try_from(delay).ok(),
                    ..HandleResponse::default()
                }
            }
        };
        if let Some(span) = self.span.take() {
            span.end(&response, podward_kube_util::now());
        }
        // If the stream has ended, the question is asked again.
        let _ = self.answers.try_send(v1::AttachAnswer { call_id: self.id, response: Some(response) });
    }
}

fn wire(level: EvidenceLevel) -> v1::EvidenceLevel {
    match level {
        EvidenceLevel::Proven => v1::EvidenceLevel::Proven,
        EvidenceLevel::Bounded => v1::EvidenceLevel::Bounded,
        EvidenceLevel::Assumed => v1::EvidenceLevel::Assumed,
        EvidenceLevel::TimedOut => v1::EvidenceLevel::TimedOut,
    }
}

/// Returns the answer to a question about a tracked pod. A removal is read again after the last wait: `reopen` is called
/// then, and the answer follows from what is read.
pub(crate) fn answer(
    phase: HookPhase,
    tracked: &mut TrackedPod,
    access: &RegistryAccess,
    waits: CacheWaits,
    binding: &Binding,
    now: Duration,
) -> Answer {
    let pending = |reason: String| Answer::Pending { reason, wake: None };
    let fits = match (phase, tracked.presence) {
        (HookPhase::Complete, Presence::InService)
        | (HookPhase::Prepare, Presence::OutOfService | Presence::Absent | Presence::Released)
        | (HookPhase::Release, Presence::Absent | Presence::Released) => true,
        // The application deregisters its instance itself.
        (HookPhase::Release, _) if binding.mode == podward_api::discovery_binding::BindingMode::Steer => {
            return Answer::Done {
                level: EvidenceLevel::Assumed,
                detail: "the application registers itself, and nothing else of the pod is kept".to_owned(),
            };
        }
        _ => false,
    };
    if !fits {
        let reason = match phase {
            HookPhase::Complete => {
                "the containers of the pod are not ready, or an operation takes it out of service"
            }
            _ => "the pod is in service by its labels; the operation is not seen yet",
        };
        return pending(reason.to_owned());
    }
    let service = match &tracked.service {
        Ok(service) => &service.name,
        Err(problem) => return pending(problem.clone()),
    };
    if phase != HookPhase::Complete && tracked.moved.is_some() {
        let searched =
            "the registry is searched for an instance that the pod has left for another service or address";
        return pending(tracked.unreadable.clone().unwrap_or_else(|| searched.to_owned()));
    }
    let (at, checked) = match &tracked.state {
        SyncState::Shown { at, checked, .. } => (at, *checked),
        SyncState::Open { problem, .. } => {
            let reason = problem
                .clone()
                .unwrap_or_else(|| format!("service {service} of the registry is being changed"));
            return pending(reason);
        }
    };
    let pod = ShownPod {
        shown: at,
        service,
        addresses: access.addresses().len(),
        can_read: access.registry.can_read(),
    };
    let removes = phase == HookPhase::Prepare && access.registry.can_read();
    let lists_due = at.lists_due(waits);
    let lists_are_read = checked >= lists_due || waits.list_lag.is_zero();
    let stale = at.stale_list.as_ref().filter(|stale| stale.at == checked);
    match verdict(phase, pod, waits, now) {
        _ if removes && !lists_are_read && now >= lists_due => {
            let reason = format!("the lists of service {service} are read");
            tracked.recheck();
            pending(reason)
        }
        Verdict::Pending { reason, until } => Answer::Pending {
            reason: stale.map_or(reason, |stale| stale.problem.clone()),
            wake: Some(if lists_are_read { until } else { until.min(lists_due) }),
        },
        Verdict::Done { level, detail } => {
            if removes && checked < at.unused_at(waits) {
                let reason = format!("service {service} is read once more after the wait");
                tracked.recheck();
                return pending(reason);
            }
            Answer::Done { level, detail }
        }
    }
}
