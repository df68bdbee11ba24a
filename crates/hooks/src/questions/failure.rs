//! Failed calls.

/// The longest text in bytes that is kept of a hook: it goes into annotations, conditions and events.
pub(crate) const TEXT_LIMIT: usize = 1024;

/// A call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// The step at which the call failed.
    pub kind: CallFailureKind,
    /// False if the hook cannot have received the call.
    pub may_have_arrived: bool,
    /// The reason, for people. At most 1024 bytes.
    pub text: String,
}

/// The step at which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailureKind {
    /// No hook system is attached yet, and it has some time left to attach.
    Attaching,
    /// The connection could not be made.
    Connection,
    /// The hook did not answer.
    Answer,
    /// The hook server rejects every call of Podward.
    Refused,
    /// The hook failed at this question. Other questions may succeed.
    Question,
}

impl CallFailure {
    pub(crate) fn connection(text: impl Into<String>) -> Self {
        CallFailure { kind: CallFailureKind::Connection, may_have_arrived: false, text: cut(text.into()) }
    }

    pub(crate) fn answer(text: impl Into<String>) -> Self {
        CallFailure { kind: CallFailureKind::Answer, may_have_arrived: true, text: cut(text.into()) }
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        CallFailure { kind: CallFailureKind::Refused, may_have_arrived: true, text: cut(text.into()) }
    }

    pub(crate) fn question(text: impl Into<String>) -> Self {
        CallFailure { kind: CallFailureKind::Question, may_have_arrived: true, text: cut(text.into()) }
    }
}

/// Returns at most the first [`TEXT_LIMIT`] bytes of `text`, and whole characters only.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_LIMIT));
    text
}
