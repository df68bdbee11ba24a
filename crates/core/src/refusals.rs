//! Results that are refused, and whose operators are told so.
//!
//! A check of the result that says no keeps the operation waiting until it says yes: the pod stays out of service. Where it was set up
//! so ([`PostCheckRejection::Rollback`]), its operator is told too, because nobody else can do anything about it: by the label
//! [`Stage::Rollback`], and by who refused, why and since when, in the annotation [`REFUSED`](crate::keys::REFUSED).
//!
//! # Guarantees
//! - The label is there only while the result waits to be judged, and somebody has refused it. It goes with the write that begins the
//!   operation anew, cancels it, or accepts its result; and when those who have refused agree, aren't asked any more, or are set up to
//!   hold only.
//! - A refusal is taken back by its author alone. Not by a restart of Podward, after which he hasn't been heard, nor by his being out of
//!   reach or taking his time: otherwise an operator would see it come and go.
//! - What was refused in one run of an operation says nothing of the next.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use serde::{Deserialize, Serialize};

use crate::keys::Stage;
use crate::operations::{Operations, UNKNOWN_TYPE};
use crate::time::UnixNanos;
use crate::view::PodView;

/// More than this many bytes of a reason aren't kept on the pod.
const REASON_LIMIT: usize = 256;
/// So many are named who refuse one result; whoever comes after them is in the pod's condition alone.
const MOST: usize = 16;

/// What it means that a check says no to a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostCheckRejection {
    /// The operation waits until it says yes.
    #[default]
    Hold,
    /// The same, and the operator is told that the result is refused.
    Rollback,
}

impl PostCheckRejection {
    /// The text in resources and annotations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PostCheckRejection::Hold => "Hold",
            PostCheckRejection::Rollback => "Rollback",
        }
    }

    /// Reads that text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [PostCheckRejection::Hold, PostCheckRejection::Rollback].into_iter().find(|it| it.as_str() == text)
    }
}

/// Somebody who doesn't accept a result, and of whose refusal the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Who: [`name_of_hook`](Self::name_of_hook) or [`name_of_rule`](Self::name_of_rule).
    pub by: String,
    /// Why. `None` where it says neither yes nor no, or wasn't heard: what it has refused before stays refused.
    pub reason: Option<String>,
}

impl Objection {
    /// How a hook is named: `hook <name>`.
    #[must_use]
    pub fn name_of_hook(hook: &str) -> String {
        format!("hook {hook}")
    }

    /// How a rule is named: `rule <object>/<rule>`.
    #[must_use]
    pub fn name_of_rule(object: &str, rule: &str) -> String {
        format!("{RULE}{object}/{rule}")
    }

    /// Whether it says no.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.reason.is_some()
    }
}

const RULE: &str = "rule ";

/// A result that is refused from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The operation's id.
    pub id: String,
    /// Its type.
    pub operation_type: String,
    /// Who refuses; see [`Objection::by`].
    pub by: String,
    /// Why.
    pub reason: String,
}

/// One refusal, as it stands on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// Who refuses; see [`Objection::by`].
    pub by: &'a str,
    /// Why, as far as it was kept.
    pub reason: &'a str,
    /// Since when.
    pub since: UnixNanos,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    reason: String,
    /// Nanoseconds since the Unix epoch.
    since: i64,
}

/// The annotation [`REFUSED`](crate::keys::REFUSED): by operation, who refuses its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<String, BTreeMap<String, Entry>>);

impl Refusals {
    /// Reads the annotation. What can't be read was not written by Podward, and counts as nothing.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        Refusals(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// The refusals that count on `pod`: those of operations that have the label.
    #[must_use]
    pub fn of(pod: &PodView<'_>) -> Self {
        let mut refusals = Refusals::parse(pod.facts.refused);
        refusals.retain(|id| pod.labels.contains_key(&Stage::Rollback.key(id)));
        refusals
    }

    /// Who refuses the result of the operation `id`, in the order of their names.
    pub fn of_operation(&self, id: &str) -> impl Iterator<Item = Refusal<'_>> {
        let entries = self.0.get(id).into_iter().flatten();
        entries.map(|(by, entry)| Refusal { by, reason: &entry.reason, since: UnixNanos(entry.since) })
    }

    /// The same as objections of rules that weren't heard: for somebody who doesn't know which rules there are.
    #[must_use]
    pub fn of_unheard_rules(&self, id: &str) -> Vec<Objection> {
        let rules = self.of_operation(id).filter(|refusal| refusal.by.starts_with(RULE));
        rules.map(|refusal| Objection { by: refusal.by.to_owned(), reason: None }).collect()
    }

    pub(crate) fn has(&self, id: &str, by: &str) -> bool {
        self.0.get(id).is_some_and(|entries| entries.contains_key(by))
    }

    pub(crate) fn text(&self) -> Option<String> {
        if self.0.is_empty() { None } else { serde_json::to_string(&self.0).ok() }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|id, _| keep(id));
    }

    /// Takes over what is said now of the result of the operation `id`. Gives since when it is refused, if it is.
    pub(crate) fn hear(&mut self, id: &str, objections: Vec<Objection>, now: UnixNanos) -> Option<UnixNanos> {
        let mut entries = self.0.remove(id).unwrap_or_default();
        entries.retain(|by, _| objections.iter().any(|objection| objection.by == *by));
        for Objection { by, reason } in objections {
            let Some(mut reason) = reason else { continue };
            reason.truncate(reason.floor_char_boundary(REASON_LIMIT));
            let has_room = entries.len() < MOST;
            match entries.entry(by) {
                MapEntry::Occupied(mut known) => known.get_mut().reason = reason,
                MapEntry::Vacant(new) if has_room => drop(new.insert(Entry { reason, since: now.0 })),
                MapEntry::Vacant(_) => {}
            }
        }
        let since = entries.values().map(|entry| UnixNanos(entry.since)).min();
        if since.is_some() {
            self.0.insert(id.to_owned(), entries);
        }
        since
    }

    /// Whether the same refuse the same. Their words may differ: that isn't worth a write.
    pub(crate) fn are_by_the_same(&self, other: &Refusals) -> bool {
        let all = |refusals: &Refusals| -> Vec<(String, String)> {
            let pairs = refusals.0.iter().flat_map(|(id, entries)| entries.keys().map(move |by| (id, by)));
            pairs.map(|(id, by)| (id.clone(), by.clone())).collect()
        };
        self.0.len() == other.0.len() && all(self) == all(other)
    }

    /// What is refused here, and was not `before`.
    pub(crate) fn beyond(&self, before: &Refusals, operations: &Operations<'_>) -> Vec<Refused> {
        let mut new = Vec::new();
        for (id, entries) in &self.0 {
            let operation_type = operations.type_of(id).map_or_else(|| UNKNOWN_TYPE.to_owned(), Into::into);
            let is_new = |(by, entry): &(&String, &Entry)| {
                let known = before.0.get(id).and_then(|entries| entries.get(*by));
                known.is_none_or(|known| known.since != entry.since)
            };
            new.extend(entries.iter().filter(is_new).map(|(by, entry)| Refused {
                id: id.clone(),
                operation_type: operation_type.clone(),
                by: by.clone(),
                reason: entry.reason.clone(),
            }));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(by: &str, reason: Option<&str>) -> Objection {
        Objection { by: by.to_owned(), reason: reason.map(ToOwned::to_owned) }
    }

    #[test]
    fn a_refusal_is_taken_back_by_its_author_alone() {
        let mut refusals = Refusals::default();
        let mut hear = |objections: Vec<Objection>, now| refusals.hear("a", objections, UnixNanos(now));
        assert_eq!(hear(vec![objection("x", None)], 1), None, "who says nothing refuses nothing");
        assert_eq!(hear(vec![objection("x", Some("bad"))], 2), Some(UnixNanos(2)));
        assert_eq!(hear(vec![objection("x", None), objection("y", Some("worse"))], 3), Some(UnixNanos(2)));
        assert_eq!(hear(vec![objection("y", Some("still"))], 4), Some(UnixNanos(3)), "x agrees");
        assert_eq!(hear(vec![], 5), None);
        assert_eq!(refusals.text(), None);
    }

    #[test]
    fn what_is_on_the_pod_reads_back_and_garbage_is_nothing() {
        let mut refusals = Refusals::default();
        refusals.hear("a", vec![objection("hook judge", Some("too many errors"))], UnixNanos(7));
        let text = refusals.text().unwrap();
        assert_eq!(text, r#"{"a":{"hook judge":{"reason":"too many errors","since":7}}}"#);
        assert_eq!(Refusals::parse(Some(&text)), refusals);
        for text in ["", "[]", r#"{"a":1}"#, r#"{"a":{"b":{"reason":1}}}"#] {
            assert_eq!(Refusals::parse(Some(text)), Refusals::default(), "{text}");
        }
    }

    #[test]
    fn other_words_of_the_same_are_not_news() {
        let mut before = Refusals::default();
        before.hear("a", vec![objection("x", Some("3 errors"))], UnixNanos(1));
        let mut after = before.clone();
        after.hear("a", vec![objection("x", Some("4 errors"))], UnixNanos(2));
        assert!(before != after && before.are_by_the_same(&after));
        assert_eq!(after.beyond(&before, &Operations::default()), []);
        after.hear("a", vec![objection("x", None), objection("y", Some("no"))], UnixNanos(3));
        assert!(!before.are_by_the_same(&after));
        let news = after.beyond(&before, &Operations::default());
        assert_eq!(news.iter().map(|refused| refused.by.as_str()).collect::<Vec<_>>(), ["y"]);
    }

    #[test]
    fn the_record_is_bounded() {
        let mut refusals = Refusals::default();
        let crowd = (0..100).map(|number| objection(&format!("rule a/{number:03}"), Some(&"ü".repeat(1000))));
        refusals.hear("a", crowd.collect(), UnixNanos(1));
        assert_eq!(refusals.of_operation("a").count(), MOST);
        assert!(refusals.of_operation("a").all(|refusal| refusal.reason.len() <= REASON_LIMIT));
        assert_eq!(refusals.of_unheard_rules("a").len(), MOST);
    }

    #[test]
    fn policies_read_back() {
        for policy in [PostCheckRejection::Hold, PostCheckRejection::Rollback] {
            assert_eq!(PostCheckRejection::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(PostCheckRejection::parse("rollback"), None);
    }
}
