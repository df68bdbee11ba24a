//! Conversion of answers to gRPC.

use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::hooks::{EvidenceLevel, HookPhase};
use podward_proto::v1::{self, HandleResponse};
use prost_types::Timestamp;

use super::question::TrafficQuestion;
use crate::clock::between;
use crate::metrics::TrafficMetrics;
use crate::verdict::TrafficVerdict;

/// The minimum delay until the next attempt. It is short, because the call was held open and the answer did not change.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Converts the answer to `question`. Counts it in the metrics, and logs it if the outcome is DONE.
pub(super) fn response(
    question: &TrafficQuestion,
    verdict: TrafficVerdict,
    now: UnixNanos,
    metrics: &TrafficMetrics,
) -> HandleResponse {
    let phase = phase_name(question.phase);
    match verdict {
        TrafficVerdict::Done(evidence) => {
            let (level, level_name) = level(evidence.level);
            metrics.answered(phase, "done", level_name);
            tracing::info!(
                phase,
                namespace = &*question.pod.namespace,
                pod = question.pod.name,
                evidence = level_name,
                detail = evidence.detail,
                "the question is answered"
            );
            HandleResponse {
                outcome: v1::Outcome::Done.into(),
                evidence: Some(v1::Evidence { level: level.into(), detail: evidence.detail }),
                ..HandleResponse::default()
            }
        }
        TrafficVerdict::Pending { reason, until } => {
            metrics.answered(phase, "pending", "none");
            let delay = until
                .map_or(MIN_RETRY_DELAY, |until| between(now, until).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY));
            HandleResponse {
                outcome: v1::Outcome::Pending.into(),
                message: reason,
                retry_after: prost_types::Duration::try_from(delay).ok(),
                expected_end: until.map(timestamp),
                ..HandleResponse::default()
            }
        }
    }
}

fn timestamp(time: UnixNanos) -> Timestamp {
    // The remainder fits into the type.
    let nanos = i32::try_from(time.0.rem_euclid(1_000_000_000)).unwrap_or_default();
    Timestamp { seconds: time.0.div_euclid(1_000_000_000), nanos }
}

const fn phase_name(phase: HookPhase) -> &'static str {
    match phase {
        HookPhase::PreCheck => "pre-check",
        HookPhase::Prepare => "prepare",
        HookPhase::PostCheck => "post-check",
        HookPhase::Complete => "complete",
        HookPhase::Release => "release",
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
