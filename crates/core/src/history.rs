//! The history of the operations on a pod: the annotation [`HISTORY`](crate::keys::HISTORY).
//!
//! The labels of an operation contain its times only until it ends. The write that removes them adds the times to the
//! history, so that the history costs no write of its own: the mutating-webhook extends the write of an operator, and
//! the lifecycle-controller its own. No decision depends on the history.

mod admission;
mod record;
mod step;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::hooks::EvidenceRecord;
use crate::model::operations::Operations;
use crate::model::time::UnixNanos;
use crate::trace::{RunOutcome, has_finished, phase_of, starts};

pub use admission::with_history;
pub use record::OperationRecord;
use step::Step;

/// The number of operations that are kept.
pub const MAX_RECORDS: usize = 8;
/// The number of bytes of the annotation. Older operations are dropped first.
pub const MAX_BYTES: usize = 2048;
/// The number of bytes of the name of a user that are kept.
const MAX_USER: usize = 128;
/// The number of hooks whose evidence is kept for an operation.
const MAX_HOOKS: usize = 8;

type Labels = BTreeMap<String, String>;

/// A write to the labels of a pod.
#[derive(Clone, Copy, Debug)]
pub struct LabelWrite<'a> {
    /// The labels before the write.
    pub before: &'a Labels,
    /// The labels after the write.
    pub after: &'a Labels,
    /// The text of the annotation [`HISTORY`](crate::keys::HISTORY) before the write.
    pub history: Option<&'a str>,
    /// The text of the annotation [`EVIDENCE`](crate::keys::EVIDENCE) before the write.
    pub evidence: Option<&'a str>,
    /// The user who makes the write, if it is not Podward.
    pub writer: Option<&'a str>,
    /// The time of the write.
    pub now: UnixNanos,
}

/// Returns the new text of the annotation [`HISTORY`](crate::keys::HISTORY), or `None` if it does not change: no
/// operation begins, is finished by its operator, or ends in `write`.
///
/// ```
/// use std::collections::BTreeMap;
/// use podward_core::UnixNanos;
/// use podward_core::history::{LabelWrite, record, records};
/// use podward_core::keys::Stage;
///
/// let idle = BTreeMap::new();
/// let begun = BTreeMap::from([
///     (Stage::Operating.key("upgrade"), "1".to_owned()),
///     (Stage::OperationType.key("upgrade"), "update".to_owned()),
/// ]);
/// let write = |before, after, history, now| {
///     record(&LabelWrite { before, after, history, evidence: None, writer: Some("jane"), now: UnixNanos(now) })
/// };
/// let text = write(&idle, &begun, None, 1_000_000_000).unwrap();
/// assert_eq!(write(&begun, &begun, Some(&text), 2_000_000_000), None);
/// let text = write(&begun, &idle, Some(&text), 3_000_000_000).unwrap();
/// let record = &records(&idle, Some(&text))[0];
/// assert_eq!((record.begun_by.as_deref(), record.ended), (Some("jane"), Some(2000)));
/// ```
#[must_use]
pub fn record(write: &LabelWrite<'_>) -> Option<String> {
    let (from, to) = (Operations::parse(write.before), Operations::parse(write.after));
    let ids: BTreeSet<&str> = from.iter().chain(to.iter()).map(|(id, _)| id).collect();
    let steps: Vec<_> = ids.into_iter().filter_map(|id| Some((id, Step::of(&from, &to, id)?))).collect();
    if steps.is_empty() {
        return None;
    }
    let mut records = known(write.history, &from);
    for (id, step) in steps {
        if matches!(step, Step::Ends | Step::BeginsAgain) {
            end(&mut records, write, &from, id, step);
        }
        match step {
            Step::Begins | Step::BeginsAgain => {
                let mut record = OperationRecord::new(id, write.now);
                record.operation_type = to.type_name(id);
                record.begun_by = writer(write);
                record.enter_all(&[], phase_of(&to, id), write.now);
                records.push(record);
            }
            Step::Finishes => {
                let record = open(&mut records, write.before, &from, id, write.now);
                record.collect_evidence(write.evidence);
                record.finished_by = writer(write);
                record.enter_all(&starts(write.after, id), phase_of(&to, id), write.now);
            }
            Step::Ends => {}
        }
    }
    Some(text(records))
}

/// Returns the operations in the history of a pod, the latest last. Those that are not over have the times in `labels`.
/// An entry that cannot be read is skipped.
#[must_use]
pub fn records(labels: &Labels, history: Option<&str>) -> Vec<OperationRecord> {
    let operations = Operations::parse(labels);
    let mut records = known(history, &operations);
    for (id, _) in operations.iter().filter(|(id, _)| phase_of(&operations, id).is_some()) {
        open(&mut records, labels, &operations, id, UnixNanos::default());
    }
    records
}

/// Returns the operations in the history of a pod that is being deleted. Those that were not over end `now`, with the
/// outcome [`RunOutcome::PodGone`].
#[must_use]
pub fn of_deleted(
    labels: &Labels,
    history: Option<&str>,
    evidence: Option<&str>,
    now: UnixNanos,
) -> Vec<OperationRecord> {
    let mut records = records(labels, history);
    for record in records.iter_mut().filter(|record| record.outcome.is_none()) {
        record.collect_evidence(evidence);
        record.outcome = Some(RunOutcome::PodGone);
        record.end(now);
    }
    records
}

/// Reads the text of the annotation [`HISTORY`](crate::keys::HISTORY) of an event.
#[must_use]
pub fn parse(text: &str) -> Vec<OperationRecord> {
    stored(Some(text))
}

fn end(
    records: &mut Vec<OperationRecord>,
    write: &LabelWrite<'_>,
    from: &Operations<'_>,
    id: &str,
    step: Step,
) {
    let finished = phase_of(from, id).is_some_and(has_finished);
    let record = open(records, write.before, from, id, write.now);
    record.collect_evidence(write.evidence);
    record.outcome = Some(match step {
        _ if finished => RunOutcome::Completed,
        Step::BeginsAgain => RunOutcome::BegunAgain,
        _ => RunOutcome::Cancelled,
    });
    if !finished {
        record.finished_by = writer(write);
    }
    record.end(write.now);
}

/// Returns the record of the operation, with the times in the labels. `now` is the time of a start that is not known.
fn open<'r>(
    records: &'r mut Vec<OperationRecord>,
    labels: &Labels,
    operations: &Operations<'_>,
    id: &str,
    now: UnixNanos,
) -> &'r mut OperationRecord {
    let starts = starts(labels, id);
    // Without a record, the operation began while nothing recorded it.
    let place = find_open(records, id).unwrap_or_else(|| {
        let began = starts.first().map_or(now, |(_, at)| *at);
        records.push(OperationRecord::new(id, began));
        records.len() - 1
    });
    let record = &mut records[place];
    record.operation_type = operations.type_name(id);
    record.enter_all(&starts, phase_of(operations, id), now);
    record
}

fn find_open(records: &mut [OperationRecord], id: &str) -> Option<usize> {
    records.iter().rposition(|record| record.id == id && record.outcome.is_none())
}

fn writer(write: &LabelWrite<'_>) -> Option<String> {
    let mut writer = write.writer?.to_owned();
    writer.truncate(writer.floor_char_boundary(MAX_USER));
    Some(writer)
}

/// Returns the operations in the history, without those whose end nothing recorded.
fn known(history: Option<&str>, operations: &Operations<'_>) -> Vec<OperationRecord> {
    let mut records = stored(history);
    records.retain(|record| record.outcome.is_some() || phase_of(operations, &record.id).is_some());
    records
}

/// Others can write the annotation, too: a text that Podward would not write is no history.
fn stored(text: Option<&str>) -> Vec<OperationRecord> {
    let text = text.filter(|text| text.len() <= 2 * MAX_BYTES);
    let entries: Vec<serde_json::Value> =
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect()
}

/// Returns the text of the annotation [`HISTORY`](crate::keys::HISTORY), without the oldest operations if they are too
/// many.
#[must_use]
pub fn text(records: Vec<OperationRecord>) -> String {
    let entries: Vec<String> =
        records.iter().map(|record| serde_json::to_string(record).unwrap_or_default()).collect();
    let mut kept = vec![true; entries.len()];
    let mut count = entries.len();
    // Brackets, and a comma between two entries.
    let mut bytes = entries.iter().map(|entry| entry.len() + 1).sum::<usize>() + 1;
    // Operations that are not over are kept as long as possible: their times are nowhere else.
    let is_over = |place: &usize| records[*place].outcome.is_some();
    let (over, active): (Vec<usize>, Vec<usize>) = (0..entries.len()).partition(is_over);
    for place in over.into_iter().chain(active) {
        if count <= 1 || (count <= MAX_RECORDS && bytes <= MAX_BYTES) {
            break;
        }
        kept[place] = false;
        count -= 1;
        bytes -= entries[place].len() + 1;
    }
    let kept: Vec<String> =
        entries.into_iter().zip(kept).filter(|(_, is_kept)| *is_kept).map(|(entry, _)| entry).collect();
    format!("[{}]", kept.join(","))
}

impl OperationRecord {
    fn collect_evidence(&mut self, text: Option<&str>) {
        for (hook, level) in EvidenceRecord::parse(text).levels() {
            if self.evidence.len() < MAX_HOOKS || self.evidence.contains_key(hook) {
                self.evidence.insert(hook.to_owned(), level.to_owned());
            }
        }
    }
}
