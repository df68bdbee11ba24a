//! Refused results, and how their operators are told.
//!
//! While a check refuses a result, the operation waits and the pod stays out of service. With
//! [`PostCheckRejection::Rollback`](crate::PostCheckRejection::Rollback) the operator is told too, because only the
//! operator can fix the result: by the label [`Stage::Rollback`] and, with the checks, reasons and times, by the
//! annotation [`RESULT_REFUSED`](crate::keys::RESULT_REFUSED).
//!
//! # Guarantees
//! - The label is present only while the result is being checked and a check refuses it. It is removed by the write
//!   that begins the operation again, cancels it or accepts its result, and when the checks that refused it accept it,
//!   no longer apply, or are set to `Hold`.
//! - Only the check that refused a result withdraws its refusal. A restart of Podward, an unreachable check or a late
//!   answer does not; otherwise the operator would see the refusal come and go.
//! - A refusal in one run of an operation does not apply to the next run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use serde::{Deserialize, Serialize};

use crate::model::keys::Stage;
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;
use crate::model::view::PodView;

use super::objection::{Objection, RULE_PREFIX};

/// The number of bytes of a reason that are stored on the pod.
const REASON_LIMIT: usize = 256;
/// The number of checks that are stored for one result. Further checks only appear in the condition of the pod.
const MAX_REFUSALS: usize = 16;

/// A result that is refused from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedResult {
    /// The id of the operation.
    pub id: String,
    /// The type of the operation.
    pub operation_type: String,
    /// The check that refuses the result; see [`Objection::by`].
    pub by: String,
    /// The reason.
    pub reason: String,
}

/// A refusal that is stored on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRefusal<'a> {
    /// The check that refuses the result; see [`Objection::by`].
    pub by: &'a str,
    /// The stored part of the reason.
    pub reason: &'a str,
    /// The time of the refusal.
    pub since: UnixNanos,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredRefusal {
    reason: String,
    /// Nanoseconds since the Unix epoch.
    since: i64,
}

/// The annotation [`RESULT_REFUSED`](crate::keys::RESULT_REFUSED): the refusals by operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultRefusals(BTreeMap<String, BTreeMap<String, StoredRefusal>>);

impl ResultRefusals {
    /// Reads the annotation. A text that cannot be read was not written by Podward and counts as no refusals.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        ResultRefusals(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// Returns the refusals that apply to `pod`: those of operations with the label.
    #[must_use]
    pub fn of(pod: &PodView<'_>) -> Self {
        let mut refusals = ResultRefusals::parse(pod.facts.result_refused);
        refusals.retain(|id| pod.labels.contains_key(&Stage::Rollback.key(id)));
        refusals
    }

    /// Returns the refusals of the result of the operation `id`, ordered by check.
    pub fn of_operation(&self, id: &str) -> impl Iterator<Item = ResultRefusal<'_>> {
        let entries = self.0.get(id).into_iter().flatten();
        entries.map(|(by, entry)| ResultRefusal { by, reason: &entry.reason, since: UnixNanos(entry.since) })
    }

    /// Returns the refusals of rules as objections without an answer, for a caller that does not know the rules.
    #[must_use]
    pub fn of_unknown_rules(&self, id: &str) -> Vec<Objection> {
        let rules = self.of_operation(id).filter(|refusal| refusal.by.starts_with(RULE_PREFIX));
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

    /// Updates the refusals of the operation `id` with the present objections. Returns since when the result is
    /// refused, or `None`.
    pub(crate) fn update(
        &mut self,
        id: &str,
        objections: Vec<Objection>,
        now: UnixNanos,
    ) -> Option<UnixNanos> {
        let mut entries = self.0.remove(id).unwrap_or_default();
        entries.retain(|by, _| objections.iter().any(|objection| objection.by == *by));
        for Objection { by, reason } in objections {
            let Some(mut reason) = reason else { continue };
            reason.truncate(reason.floor_char_boundary(REASON_LIMIT));
            let has_room = entries.len() < MAX_REFUSALS;
            match entries.entry(by) {
                MapEntry::Occupied(mut known) => known.get_mut().reason = reason,
                MapEntry::Vacant(new) if has_room => drop(new.insert(StoredRefusal { reason, since: now.0 })),
                MapEntry::Vacant(_) => {}
            }
        }
        let since = entries.values().map(|entry| UnixNanos(entry.since)).min();
        if since.is_some() {
            self.0.insert(id.to_owned(), entries);
        }
        since
    }

    /// Returns whether the same checks refuse the same results. A changed reason alone is not worth a write.
    pub(crate) fn are_by_the_same(&self, other: &ResultRefusals) -> bool {
        let all = |refusals: &ResultRefusals| -> Vec<(String, String)> {
            let pairs = refusals.0.iter().flat_map(|(id, entries)| entries.keys().map(move |by| (id, by)));
            pairs.map(|(id, by)| (id.clone(), by.clone())).collect()
        };
        self.0.len() == other.0.len() && all(self) == all(other)
    }

    /// Returns the refusals in `self` that are not in `before`.
    pub(crate) fn beyond(&self, before: &ResultRefusals, operations: &Operations<'_>) -> Vec<RefusedResult> {
        let mut new = Vec::new();
        for (id, entries) in &self.0 {
            let operation_type = operations.type_name(id);
            let is_new = |(by, entry): &(&String, &StoredRefusal)| {
                let known = before.0.get(id).and_then(|entries| entries.get(*by));
                known.is_none_or(|known| known.since != entry.since)
            };
            new.extend(entries.iter().filter(is_new).map(|(by, entry)| RefusedResult {
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
        let mut refusals = ResultRefusals::default();
        let mut update = |objections: Vec<Objection>, now| refusals.update("a", objections, UnixNanos(now));
        assert_eq!(update(vec![objection("x", None)], 1), None, "who says nothing refuses nothing");
        assert_eq!(update(vec![objection("x", Some("bad"))], 2), Some(UnixNanos(2)));
        assert_eq!(update(vec![objection("x", None), objection("y", Some("worse"))], 3), Some(UnixNanos(2)));
        assert_eq!(update(vec![objection("y", Some("still"))], 4), Some(UnixNanos(3)), "x agrees");
        assert_eq!(update(vec![], 5), None);
        assert_eq!(refusals.text(), None);
    }

    #[test]
    fn what_is_on_the_pod_reads_back_and_garbage_is_nothing() {
        let mut refusals = ResultRefusals::default();
        refusals.update("a", vec![objection("hook judge", Some("too many errors"))], UnixNanos(7));
        let text = refusals.text().unwrap();
        assert_eq!(text, r#"{"a":{"hook judge":{"reason":"too many errors","since":7}}}"#);
        assert_eq!(ResultRefusals::parse(Some(&text)), refusals);
        for text in ["", "[]", r#"{"a":1}"#, r#"{"a":{"b":{"reason":1}}}"#] {
            assert_eq!(ResultRefusals::parse(Some(text)), ResultRefusals::default(), "{text}");
        }
    }

    #[test]
    fn other_words_of_the_same_are_not_news() {
        let mut before = ResultRefusals::default();
        before.update("a", vec![objection("x", Some("3 errors"))], UnixNanos(1));
        let mut after = before.clone();
        after.update("a", vec![objection("x", Some("4 errors"))], UnixNanos(2));
        assert!(before != after && before.are_by_the_same(&after));
        assert_eq!(after.beyond(&before, &Operations::default()), []);
        after.update("a", vec![objection("x", None), objection("y", Some("no"))], UnixNanos(3));
        assert!(!before.are_by_the_same(&after));
        let news = after.beyond(&before, &Operations::default());
        assert_eq!(news.iter().map(|refused| refused.by.as_str()).collect::<Vec<_>>(), ["y"]);
    }

    #[test]
    fn the_record_is_bounded() {
        let mut refusals = ResultRefusals::default();
        let crowd = (0..100).map(|number| objection(&format!("rule a/{number:03}"), Some(&"ü".repeat(1000))));
        refusals.update("a", crowd.collect(), UnixNanos(1));
        assert_eq!(refusals.of_operation("a").count(), MAX_REFUSALS);
        assert!(refusals.of_operation("a").all(|refusal| refusal.reason.len() <= REASON_LIMIT));
        assert_eq!(refusals.of_unknown_rules("a").len(), MAX_REFUSALS);
    }
}
