//! The annotation in which Podward keeps the requests to hooks that labels, finalizers and conditions do not show.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hooks::annotation::{read, text};
use crate::model::time::UnixNanos;

/// The state of the last request to a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum HookRequestState {
    /// The hook was not asked yet. Its finalizer was added because it may use the pod, and it will be asked to release
    /// it.
    Held,
    /// The hook was asked to release the pod. It is unknown whether it still uses it.
    Prepare,
    /// The hook has released the pod, and the gate is still on.
    Drained,
    /// The hook was asked to add the pod to traffic.
    Complete,
    /// The hook was asked to forget the pod.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HookRequest {
    pub(crate) phase: HookRequestState,
    /// The time of the request, in nanoseconds since the Unix epoch.
    pub(crate) since: i64,
}

/// The annotation [`HOOK_REQUESTS`](crate::keys::HOOK_REQUESTS): the requests by hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HookRequests(pub(crate) BTreeMap<String, HookRequest>);

impl HookRequests {
    /// Reads the annotation. A text that cannot be read was not written by Podward and counts as no requests.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        HookRequests(read(text))
    }

    pub(crate) fn text(&self) -> Option<String> {
        text(&self.0)
    }

    pub(crate) fn is(&self, hook: &str, phase: HookRequestState) -> bool {
        self.0.get(hook).is_some_and(|mark| mark.phase == phase)
    }

    /// Returns whether the finalizer of the hook does not show whether the hook uses the pod: it was asked and has not
    /// answered DONE, or was not asked at all.
    pub(crate) fn leaves_in_doubt(&self, hook: &str) -> bool {
        self.0.get(hook).is_some_and(|mark| mark.phase != HookRequestState::Drained)
    }

    /// Begins a new round at `now`. A hook that was asked to release the pod in an earlier one is asked again, with a
    /// deadline and evidence of this round. It is still unknown whether it uses the pod.
    pub(crate) fn begin_round(&mut self, now: UnixNanos) {
        self.0.retain(|_, mark| mark.phase != HookRequestState::Drained);
        for mark in self.0.values_mut().filter(|mark| mark.phase == HookRequestState::Prepare) {
            *mark = HookRequest { phase: HookRequestState::Held, since: now.0 };
        }
    }

    /// Returns since when the hook has been in this state, and records `now` for a new state.
    pub(crate) fn since(&mut self, hook: &str, phase: HookRequestState, now: UnixNanos) -> UnixNanos {
        match self.0.get(hook) {
            Some(mark) if mark.phase == phase => UnixNanos(mark.since),
            _ => {
                self.0.insert(hook.to_owned(), HookRequest { phase, since: now.0 });
                now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_text_counts_as_nothing() {
        for text in ["", "no", "[]", r#"{"a":1}"#] {
            assert_eq!(HookRequests::parse(Some(text)), HookRequests::default(), "{text}");
        }
    }

    #[test]
    fn a_mark_keeps_its_time_until_the_question_is_another() {
        let mut marks = HookRequests::default();
        assert_eq!(marks.since("a", HookRequestState::Prepare, UnixNanos(1)), UnixNanos(1));
        assert_eq!(marks.since("a", HookRequestState::Prepare, UnixNanos(2)), UnixNanos(1));
        assert_eq!(marks.since("a", HookRequestState::Complete, UnixNanos(3)), UnixNanos(3));
        assert_eq!(marks.text().unwrap(), r#"{"a":{"phase":"COMPLETE","since":3}}"#);
    }
}
