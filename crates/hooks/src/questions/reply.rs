//! The answer of a hook.

use std::time::Duration;

use jiff::Timestamp;
use podward_core::hooks::{Evidence, EvidenceLevel};
use podward_proto::v1;

use crate::questions::failure::{CallFailure, cut};

const RETRY_DEFAULT: Duration = Duration::from_secs(1);
const RETRY_SHORTEST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// The longest delay after a rejection without `retry_after`.
const REJECTED_LONGEST: Duration = Duration::from_secs(30);

/// The answer of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookReply {
    /// Done.
    Done(Evidence),
    /// The hook is not done yet.
    Pending {
        /// The reason of the hook.
        message: String,
        /// The delay before the next call.
        retry: Duration,
    },
    /// No.
    Rejected {
        /// Why.
        reason: String,
        /// The delay before the next call, if the hook set one.
        retry: Option<Duration>,
    },
}

impl HookReply {
    /// Converts an answer.
    ///
    /// # Errors
    ///
    /// When it has no valid outcome.
    pub fn read(response: v1::HandleResponse) -> Result<Self, CallFailure> {
        let message = cut(response.message);
        let retry = response.retry_after.map(clamp);
        match v1::Outcome::try_from(response.outcome) {
            Ok(v1::Outcome::Done) => Ok(HookReply::Done(evidence(response.evidence.unwrap_or_default()))),
            Ok(v1::Outcome::Pending) => {
                let message = with_end(message, response.expected_end);
                Ok(HookReply::Pending { message, retry: retry.unwrap_or(RETRY_DEFAULT) })
            }
            Ok(v1::Outcome::Rejected) => Ok(HookReply::Rejected { reason: message, retry }),
            Ok(v1::Outcome::Unspecified) => Err(CallFailure::question(
                "the hook answered without an outcome; it has to answer DONE, PENDING or REJECTED",
            )),
            Err(_) => Err(CallFailure::question(format!(
                "the hook answered with the outcome {}, which there is not",
                response.outcome
            ))),
        }
    }

    /// Returns the value of the metric label `outcome`.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            HookReply::Done(_) => "DONE",
            HookReply::Pending { .. } => "PENDING",
            HookReply::Rejected { .. } => "REJECTED",
        }
    }
}

/// Returns the delay before the next call after so many rejections in a row.
pub(crate) fn after_rejection(retry: Option<Duration>, rejections: u32) -> Duration {
    retry.unwrap_or_else(|| {
        let doublings = rejections.saturating_sub(1).min(10);
        RETRY_DEFAULT.saturating_mul(1 << doublings).min(REJECTED_LONGEST)
    })
}

/// A hook may not report TIMED_OUT: only Podward knows its deadlines. Other levels count as ASSUMED.
fn evidence(evidence: v1::Evidence) -> Evidence {
    let level = match v1::EvidenceLevel::try_from(evidence.level) {
        Ok(v1::EvidenceLevel::Proven) => EvidenceLevel::Proven,
        Ok(v1::EvidenceLevel::Bounded) => EvidenceLevel::Bounded,
        _ => EvidenceLevel::Assumed,
    };
    Evidence { level, detail: cut(evidence.detail) }
}

fn with_end(message: String, end: Option<prost_types::Timestamp>) -> String {
    let end = end.and_then(|end| Timestamp::new(end.seconds, end.nanos).ok());
    match (end, message.is_empty()) {
        (Some(end), true) => format!("expected to end at {end:.0}"),
        (Some(end), false) => cut(format!("{message} (expected to end at {end:.0})")),
        (None, _) => message,
    }
}

/// Limits `retry` to the allowed range. A negative duration counts as zero. The conversion of prost-types overflows at the
/// lowest number of seconds.
fn clamp(retry: prost_types::Duration) -> Duration {
    let seconds = u64::try_from(retry.seconds).unwrap_or_default();
    let nanos = u32::try_from(retry.nanos).unwrap_or_default().min(999_999_999);
    Duration::new(seconds, nanos).clamp(RETRY_SHORTEST, RETRY_LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::failure::{CallFailureKind, TEXT_LIMIT};

    fn response(outcome: v1::Outcome) -> v1::HandleResponse {
        v1::HandleResponse { outcome: outcome.into(), ..v1::HandleResponse::default() }
    }

    #[test]
    fn evidence_of_a_hook_is_limited_to_its_levels() {
        let level = |level: i32| {
            let evidence = Some(v1::Evidence { level, detail: "d".to_owned() });
            match HookReply::read(v1::HandleResponse { evidence, ..response(v1::Outcome::Done) }) {
                Ok(HookReply::Done(evidence)) => evidence.level,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(level(v1::EvidenceLevel::Proven.into()), EvidenceLevel::Proven);
        assert_eq!(level(v1::EvidenceLevel::Bounded.into()), EvidenceLevel::Bounded);
        for weak in [v1::EvidenceLevel::TimedOut.into(), v1::EvidenceLevel::Unspecified.into(), 77, -1] {
            assert_eq!(level(weak), EvidenceLevel::Assumed, "{weak}");
        }
        let bare = HookReply::read(response(v1::Outcome::Done));
        let nothing = Evidence { level: EvidenceLevel::Assumed, detail: String::new() };
        assert_eq!(bare, Ok(HookReply::Done(nothing)));
    }

    #[test]
    fn no_outcome_is_no_answer() {
        assert!(
            HookReply::read(response(v1::Outcome::Unspecified))
                .is_err_and(|failure| failure.kind == CallFailureKind::Question)
        );
        let unknown = v1::HandleResponse { outcome: 99, ..v1::HandleResponse::default() };
        assert!(HookReply::read(unknown).is_err_and(|failure| failure.text.contains("99")));
    }

    #[test]
    fn texts_are_cut_at_a_character_and_times_are_bounded() {
        let message = format!("{}é", "x".repeat(TEXT_LIMIT - 1));
        let retry_after = Some(prost_types::Duration { seconds: -5, nanos: 0 });
        let pending = v1::HandleResponse { message, retry_after, ..response(v1::Outcome::Pending) };
        let Ok(HookReply::Pending { message, retry }) = HookReply::read(pending) else {
            panic!("not pending")
        };
        assert_eq!((message.len(), retry), (TEXT_LIMIT - 1, RETRY_SHORTEST));
        let retry_after = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
        let rejected = v1::HandleResponse { retry_after, ..response(v1::Outcome::Rejected) };
        assert_eq!(
            HookReply::read(rejected),
            Ok(HookReply::Rejected { reason: String::new(), retry: Some(RETRY_LONGEST) })
        );
        let end = Some(prost_types::Timestamp { seconds: 0, nanos: 0 });
        assert_eq!(with_end("drains".to_owned(), end), "drains (expected to end at 1970-01-01T00:00:00Z)");
    }

    #[test]
    fn the_extremes_of_retry_after_do_not_stop_the_controller() {
        let clamped = |seconds, nanos| clamp(prost_types::Duration { seconds, nanos });
        assert_eq!(clamped(i64::MIN, i32::MIN), RETRY_SHORTEST);
        assert_eq!(clamped(i64::MIN, i32::MAX), Duration::from_nanos(999_999_999));
        assert_eq!(clamped(i64::MAX, i32::MAX), RETRY_LONGEST);
        assert_eq!(clamped(2, 500_000_000), Duration::from_millis(2500));
    }

    #[test]
    fn a_hook_that_rejects_is_asked_again_with_growing_delays() {
        let seconds = |rejections| after_rejection(None, rejections).as_secs();
        assert_eq!([1, 2, 3, 9].map(seconds), [1, 2, 4, 30]);
        assert_eq!(after_rejection(Some(RETRY_LONGEST), 1), RETRY_LONGEST);
    }
}
