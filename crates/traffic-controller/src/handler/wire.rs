//! Questions and answers as gRPC has them.

use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::{EvidenceLevel, Phase};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_proto::v1::{self, HandleRequest, HandleResponse};
use prost_types::Timestamp;
use tonic::Status;

use crate::clock::between;
use crate::metrics::Metrics;
use crate::verdict::Verdict;
use crate::world::PodId;

/// When to ask again after a call that was held open: nothing came, so there is nothing to wait for before the next.
const AGAIN: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(2);

/// A question.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) phase: Phase,
    pub(super) pod: PodId,
    /// Names the question.
    pub(super) question: String,
    /// When it was first asked.
    pub(super) at: Option<UnixNanos>,
    /// Whether the pod isn't Podward's any more.
    pub(super) opted_out: bool,
}

impl TryFrom<HandleRequest> for Asked {
    type Error = Status;

    fn try_from(request: HandleRequest) -> Result<Self, Status> {
        let phase = match request.phase() {
            v1::Phase::PreCheck => Phase::PreCheck,
            v1::Phase::Prepare => Phase::Prepare,
            v1::Phase::Complete => Phase::Complete,
            v1::Phase::Release => Phase::Release,
            v1::Phase::PostCheck | v1::Phase::Unspecified => {
                return Err(Status::invalid_argument(
                    "the traffic-controller is asked PRE_CHECK, PREPARE, COMPLETE and RELEASE; take other phases out of its LifecycleHook",
                ));
            }
        };
        let pod = request.pod.ok_or_else(|| Status::invalid_argument("pod is missing"))?;
        if pod.namespace.is_empty() || pod.uid.is_empty() {
            return Err(Status::invalid_argument("pod.namespace and pod.uid must be set"));
        }
        let at = request.asked_at.map(|time| {
            UnixNanos(time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into()))
        });
        let question = match request.question_id.as_str() {
            "" => format!("{}/{phase:?}/{}", pod.uid, at.unwrap_or_default()),
            id => id.to_owned(),
        };
        let opted_out = pod.labels.get(CONTROL_LABEL).map(String::as_str) != Some(CONTROL_VALUE);
        let pod = PodId {
            namespace: Arc::from(pod.namespace),
            name: pod.name,
            uid: Arc::from(pod.uid),
            addresses: pod.ips.iter().filter_map(|address| address.parse().ok()).collect(),
            labels: pod.labels.into_iter().collect(),
        };
        Ok(Self { phase, pod, question, at, opted_out })
    }
}

/// The answer to `asked`; it is counted, and logged where it is the last one.
pub(super) fn response(asked: &Asked, verdict: Verdict, now: UnixNanos, metrics: &Metrics) -> HandleResponse {
    let phase = phase_name(asked.phase);
    match verdict {
        Verdict::Done(evidence) => {
            let (level, level_name) = level(evidence.level);
            metrics.answered(phase, "done", level_name);
            tracing::info!(
                phase,
                namespace = &*asked.pod.namespace,
                pod = asked.pod.name,
                evidence = level_name,
                detail = evidence.detail,
                "done"
            );
            HandleResponse {
                outcome: v1::Outcome::Done.into(),
                evidence: Some(v1::Evidence { level: level.into(), detail: evidence.detail }),
                ..HandleResponse::default()
            }
        }
        Verdict::Pending { reason, until } => {
            metrics.answered(phase, "pending", "none");
            let rest = until.map_or(AGAIN, |until| between(now, until).clamp(AGAIN, LATEST));
            HandleResponse {
                outcome: v1::Outcome::Pending.into(),
                message: reason,
                retry_after: prost_types::Duration::try_from(rest).ok(),
                expected_end: until.map(timestamp),
                ..HandleResponse::default()
            }
        }
    }
}

fn timestamp(time: UnixNanos) -> Timestamp {
    // The remainder of a division by this fits.
    let nanos = i32::try_from(time.0.rem_euclid(1_000_000_000)).unwrap_or_default();
    Timestamp { seconds: time.0.div_euclid(1_000_000_000), nanos }
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::PreCheck => "pre-check",
        Phase::Prepare => "prepare",
        Phase::PostCheck => "post-check",
        Phase::Complete => "complete",
        Phase::Release => "release",
    }
}

const fn level(level: EvidenceLevel) -> (v1::EvidenceLevel, &'static str) {
    match level {
        EvidenceLevel::Proven => (v1::EvidenceLevel::Proven, "proven"),
        EvidenceLevel::Bounded => (v1::EvidenceLevel::Bounded, "bounded"),
        EvidenceLevel::Assumed => (v1::EvidenceLevel::Assumed, "assumed"),
        EvidenceLevel::TimedOut => (v1::EvidenceLevel::TimedOut, "timed-out"),
    }
}
