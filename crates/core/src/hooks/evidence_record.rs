//! The evidence that is stored on a pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::annotation::{read, text};
use super::evidence::{Evidence, EvidenceLevel};

/// The number of bytes of a detail that are stored on the pod.
const DETAIL_LIMIT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredEvidence {
    level: String,
    detail: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookEvidence {
    /// The evidence for the release of the pod.
    #[serde(flatten)]
    released: Option<StoredEvidence>,
    /// The evidence for adding the pod to traffic, if a deadline policy decided and not the hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added: Option<StoredEvidence>,
}

/// The annotation [`EVIDENCE`](crate::keys::EVIDENCE): the evidence by hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvidenceRecord(BTreeMap<String, HookEvidence>);

impl EvidenceRecord {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        EvidenceRecord(read(text))
    }

    pub(crate) fn text(&self) -> Option<String> {
        text(&self.0)
    }

    pub(crate) fn released(&mut self, hook: &str, evidence: &Evidence) {
        self.0.entry(hook.to_owned()).or_default().released = Some(entry(evidence));
    }

    /// Returns whether there is evidence that `hook` has released the pod, or that a deadline policy has decided so.
    pub(crate) fn has_released(&self, hook: &str) -> bool {
        self.0.get(hook).is_some_and(|record| record.released.is_some())
    }

    /// Stores the evidence for adding the pod to traffic only if a deadline policy decided.
    pub(crate) fn added(&mut self, hook: &str, evidence: &Evidence) {
        if evidence.level == EvidenceLevel::TimedOut {
            self.0.entry(hook.to_owned()).or_default().added = Some(entry(evidence));
        } else if let Some(record) = self.0.get_mut(hook) {
            record.added = None;
        }
    }

    /// Returns the level of evidence of each hook: the weaker one of release and addition.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(hook, record)| {
            // A level for the addition is stored only if a deadline policy decided.
            let found = record.added.as_ref().or(record.released.as_ref())?;
            Some((hook.as_str(), found.level.as_str()))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|hook, record| keep(hook) && *record != HookEvidence::default());
    }
}

fn entry(evidence: &Evidence) -> StoredEvidence {
    let mut detail = evidence.detail.clone();
    detail.truncate(detail.floor_char_boundary(DETAIL_LIMIT));
    StoredEvidence { level: evidence.level.as_str().to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(level: EvidenceLevel, detail: &str) -> Evidence {
        Evidence { level, detail: detail.to_owned() }
    }

    #[test]
    fn evidence_reads_back() {
        let mut found = EvidenceRecord::default();
        found.released("a", &evidence(EvidenceLevel::Proven, "no sessions"));
        found.added("a", &evidence(EvidenceLevel::TimedOut, "late"));
        let text = found.text().unwrap();
        assert_eq!(
            text,
            r#"{"a":{"level":"PROVEN","detail":"no sessions","added":{"level":"TIMED_OUT","detail":"late"}}}"#
        );
        let mut read = EvidenceRecord::parse(Some(&text));
        assert_eq!(read, found);
        read.added("a", &evidence(EvidenceLevel::Assumed, ""));
        assert_eq!(read.text().unwrap(), r#"{"a":{"level":"PROVEN","detail":"no sessions"}}"#);
        read.retain(|_| false);
        assert_eq!(read.text(), None);
        let mut only_in = EvidenceRecord::default();
        only_in.added("b", &evidence(EvidenceLevel::TimedOut, "late"));
        assert_eq!(EvidenceRecord::parse(only_in.text().as_deref()), only_in);
    }

    #[test]
    fn long_words_are_cut_and_garbage_is_nothing() {
        let mut found = EvidenceRecord::default();
        found.released("a", &evidence(EvidenceLevel::Assumed, &"ü".repeat(1000)));
        assert!(found.text().unwrap().len() < 320);
        for text in ["", "no", "[]", r#"{"a":1}"#] {
            assert_eq!(EvidenceRecord::parse(Some(text)), EvidenceRecord::default(), "{text}");
        }
    }
}
