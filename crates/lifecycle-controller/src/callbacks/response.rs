//! What a hook's answer means.

use std::time::Duration;

use jiff::Timestamp;
use podward_core::hooks::{Evidence, EvidenceLevel};
use podward_proto::v1;

/// Texts of hooks are cut to so many bytes: they go into annotations, conditions and events.
const TEXT_LIMIT: usize = 1024;
const RETRY_DEFAULT: Duration = Duration::from_secs(1);
const RETRY_SHORTEST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// As far as a hook that says no, but not when to ask again, is asked ever later.
const REJECTED_LONGEST: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Done.
    Done(Evidence),
    /// Not yet.
    Pending {
        /// What it waits for.
        message: String,
        /// When to ask again.
        retry: Duration,
    },
    /// No.
    Rejected {
        /// Why.
        reason: String,
        /// When to ask again, if it said so.
        retry: Option<Duration>,
    },
}

/// A call that brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// What went wrong, for people.
    pub(super) text: String,
}

/// How far a failed call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// There was no connection.
    Connection,
    /// The hook did not answer, or refuses to answer anybody.
    Answer,
    /// It failed at this question; others may fare better.
    Question,
}

impl Failure {
    pub(super) fn connection(text: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Connection, text: cut(text.into()) }
    }

    pub(super) fn answer(text: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Answer, text: cut(text.into()) }
    }

    pub(super) fn question(text: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Question, text: cut(text.into()) }
    }
}

impl Reply {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it isn't one.
    pub(super) fn read(response: v1::HandleResponse) -> Result<Self, Failure> {
        let message = cut(response.message);
        let retry = response.retry_after.map(clamp);
        match v1::Outcome::try_from(response.outcome) {
            Ok(v1::Outcome::Done) => Ok(Reply::Done(evidence(response.evidence.unwrap_or_default()))),
            Ok(v1::Outcome::Pending) => {
                let message = with_end(message, response.expected_end);
                Ok(Reply::Pending { message, retry: retry.unwrap_or(RETRY_DEFAULT) })
            }
            Ok(v1::Outcome::Rejected) => Ok(Reply::Rejected { reason: message, retry }),
            Ok(v1::Outcome::Unspecified) => Err(Failure::question(
                "the hook answered without an outcome; it has to answer DONE, PENDING or REJECTED",
            )),
            Err(_) => Err(Failure::question(format!(
                "the hook answered with the outcome {}, which there is not",
                response.outcome
            ))),
        }
    }

    /// The value of the metric's label.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Reply::Done(_) => "DONE",
            Reply::Pending { .. } => "PENDING",
            Reply::Rejected { .. } => "REJECTED",
        }
    }
}

/// When a hook that has said no so many times in a row is asked again.
pub(super) fn after_rejection(retry: Option<Duration>, rejections: u32) -> Duration {
    retry.unwrap_or_else(|| {
        let doublings = rejections.saturating_sub(1).min(10);
        RETRY_DEFAULT.saturating_mul(1 << doublings).min(REJECTED_LONGEST)
    })
}

/// Only Podward itself knows of deadlines passed.
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

/// A negative duration, or one that is out of range, is a short or a long one.
fn clamp(retry: prost_types::Duration) -> Duration {
    let retry = Duration::try_from(retry).unwrap_or_default();
    retry.clamp(RETRY_SHORTEST, RETRY_LONGEST)
}

/// Cut where a character ends.
pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_LIMIT));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(outcome: v1::Outcome) -> v1::HandleResponse {
        v1::HandleResponse { outcome: outcome.into(), ..v1::HandleResponse::default() }
    }

    #[test]
    fn evidence_is_what_a_hook_may_say() {
        let level = |level: i32| {
            let evidence = Some(v1::Evidence { level, detail: "d".to_owned() });
            match Reply::read(v1::HandleResponse { evidence, ..response(v1::Outcome::Done) }) {
                Ok(Reply::Done(evidence)) => evidence.level,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(level(v1::EvidenceLevel::Proven.into()), EvidenceLevel::Proven);
        assert_eq!(level(v1::EvidenceLevel::Bounded.into()), EvidenceLevel::Bounded);
        for weak in [v1::EvidenceLevel::TimedOut.into(), v1::EvidenceLevel::Unspecified.into(), 77, -1] {
            assert_eq!(level(weak), EvidenceLevel::Assumed, "{weak}");
        }
        let bare = Reply::read(response(v1::Outcome::Done));
        let nothing = Evidence { level: EvidenceLevel::Assumed, detail: String::new() };
        assert_eq!(bare, Ok(Reply::Done(nothing)));
    }

    #[test]
    fn no_outcome_is_no_answer() {
        assert!(
            Reply::read(response(v1::Outcome::Unspecified))
                .is_err_and(|failure| failure.kind == FailureKind::Question)
        );
        let unknown = v1::HandleResponse { outcome: 99, ..v1::HandleResponse::default() };
        assert!(Reply::read(unknown).is_err_and(|failure| failure.text.contains("99")));
    }

    #[test]
    fn texts_are_cut_at_a_character_and_times_are_bounded() {
        let message = format!("{}é", "x".repeat(TEXT_LIMIT - 1));
        let retry_after = Some(prost_types::Duration { seconds: -5, nanos: 0 });
        let pending = v1::HandleResponse { message, retry_after, ..response(v1::Outcome::Pending) };
        let Ok(Reply::Pending { message, retry }) = Reply::read(pending) else { panic!("not pending") };
        assert_eq!((message.len(), retry), (TEXT_LIMIT - 1, RETRY_SHORTEST));
        let retry_after = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
        let rejected = v1::HandleResponse { retry_after, ..response(v1::Outcome::Rejected) };
        assert_eq!(
            Reply::read(rejected),
            Ok(Reply::Rejected { reason: String::new(), retry: Some(RETRY_LONGEST) })
        );
        let end = Some(prost_types::Timestamp { seconds: 0, nanos: 0 });
        assert_eq!(with_end("drains".to_owned(), end), "drains (expected to end at 1970-01-01T00:00:00Z)");
    }

    #[test]
    fn who_says_no_is_asked_ever_later() {
        let seconds = |rejections| after_rejection(None, rejections).as_secs();
        assert_eq!([1, 2, 3, 9].map(seconds), [1, 2, 4, 30]);
        assert_eq!(after_rejection(Some(RETRY_LONGEST), 1), RETRY_LONGEST);
    }
}
