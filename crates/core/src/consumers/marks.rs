//! The annotations in which Podward keeps what labels, finalizers and conditions can't tell: who was asked what since when, and
//! what stood behind the answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hooks::{Evidence, EvidenceLevel};
use crate::time::UnixNanos;

/// More than this many bytes of a hook's words aren't kept on the pod.
const DETAIL_LIMIT: usize = 256;

/// What a hook was asked last, as far as it has to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Asked {
    /// Nothing yet: it was made to hold the pod, because it may, and will be asked to let go.
    Held,
    /// To let go. While this stands nobody knows whether traffic still comes through it.
    Prepare,
    /// It has let go, and the gate is still on.
    LetGo,
    /// To take the pod in.
    Complete,
    /// To forget the pod.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) phase: Asked,
    /// Nanoseconds since the Unix epoch.
    pub(crate) since: i64,
}

/// The annotation [`ASKED`](crate::keys::ASKED): hook to mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) BTreeMap<String, Mark>);

impl Marks {
    /// What can't be read was not written by Podward, and counts as nothing.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        Marks(read(text))
    }

    pub(crate) fn text(&self) -> Option<String> {
        text(&self.0)
    }

    pub(crate) fn is(&self, hook: &str, phase: Asked) -> bool {
        self.0.get(hook).is_some_and(|mark| mark.phase == phase)
    }

    /// Whether the hook was asked something without saying DONE, or not asked at all, so that its finalizer doesn't tell whether it
    /// holds the pod.
    pub(crate) fn leaves_in_doubt(&self, hook: &str) -> bool {
        self.0.get(hook).is_some_and(|mark| mark.phase != Asked::LetGo)
    }

    /// Since when the hook is asked this: from now on, if it wasn't before.
    pub(crate) fn since(&mut self, hook: &str, phase: Asked, now: UnixNanos) -> UnixNanos {
        match self.0.get(hook) {
            Some(mark) if mark.phase == phase => UnixNanos(mark.since),
            _ => {
                self.0.insert(hook.to_owned(), Mark { phase, since: now.0 });
                now
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    level: String,
    detail: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// What stood behind letting go.
    #[serde(flatten)]
    let_go: Option<Entry>,
    /// What stood behind taking in, where that was not the hook's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken_in: Option<Entry>,
}

/// The annotation [`EVIDENCE`](crate::keys::EVIDENCE): hook to what stood behind its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidences(BTreeMap<String, Record>);

impl Evidences {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        Evidences(read(text))
    }

    pub(crate) fn text(&self) -> Option<String> {
        text(&self.0)
    }

    pub(crate) fn let_go(&mut self, hook: &str, evidence: &Evidence) {
        self.0.entry(hook.to_owned()).or_default().let_go = Some(entry(evidence));
    }

    /// Only what isn't the hook's own word is kept of taking in.
    pub(crate) fn taken_in(&mut self, hook: &str, evidence: &Evidence) {
        if evidence.level == EvidenceLevel::TimedOut {
            self.0.entry(hook.to_owned()).or_default().taken_in = Some(entry(evidence));
        } else if let Some(record) = self.0.get_mut(hook) {
            record.taken_in = None;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|hook, record| keep(hook) && *record != Record::default());
    }
}

fn entry(evidence: &Evidence) -> Entry {
    let mut detail = evidence.detail.clone();
    detail.truncate(detail.floor_char_boundary(DETAIL_LIMIT));
    Entry { level: evidence.level.as_str().to_owned(), detail }
}

fn read<T: for<'de> Deserialize<'de>>(text: Option<&str>) -> BTreeMap<String, T> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn text<T: Serialize>(map: &BTreeMap<String, T>) -> Option<String> {
    if map.is_empty() { None } else { serde_json::to_string(map).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(level: EvidenceLevel, detail: &str) -> Evidence {
        Evidence { level, detail: detail.to_owned() }
    }

    #[test]
    fn evidence_reads_back() {
        let mut found = Evidences::default();
        found.let_go("a", &evidence(EvidenceLevel::Proven, "no sessions"));
        found.taken_in("a", &evidence(EvidenceLevel::TimedOut, "late"));
        let text = found.text().unwrap();
        assert_eq!(
            text,
            r#"{"a":{"level":"PROVEN","detail":"no sessions","takenIn":{"level":"TIMED_OUT","detail":"late"}}}"#
        );
        let mut read = Evidences::parse(Some(&text));
        assert_eq!(read, found);
        read.taken_in("a", &evidence(EvidenceLevel::Assumed, ""));
        assert_eq!(read.text().unwrap(), r#"{"a":{"level":"PROVEN","detail":"no sessions"}}"#);
        read.retain(|_| false);
        assert_eq!(read.text(), None);
        let mut only_in = Evidences::default();
        only_in.taken_in("b", &evidence(EvidenceLevel::TimedOut, "late"));
        assert_eq!(Evidences::parse(only_in.text().as_deref()), only_in);
    }

    #[test]
    fn long_words_are_cut_and_garbage_is_nothing() {
        let mut found = Evidences::default();
        found.let_go("a", &evidence(EvidenceLevel::Assumed, &"ü".repeat(1000)));
        assert!(found.text().unwrap().len() < 320);
        for text in ["", "no", "[]", r#"{"a":1}"#] {
            assert_eq!(Evidences::parse(Some(text)), Evidences::default(), "{text}");
            assert_eq!(Marks::parse(Some(text)), Marks::default(), "{text}");
        }
    }

    #[test]
    fn a_mark_keeps_its_time_until_the_question_is_another() {
        let mut marks = Marks::default();
        assert_eq!(marks.since("a", Asked::Prepare, UnixNanos(1)), UnixNanos(1));
        assert_eq!(marks.since("a", Asked::Prepare, UnixNanos(2)), UnixNanos(1));
        assert_eq!(marks.since("a", Asked::Complete, UnixNanos(3)), UnixNanos(3));
        assert_eq!(marks.text().unwrap(), r#"{"a":{"phase":"COMPLETE","since":3}}"#);
    }
}
