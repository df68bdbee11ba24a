//! The times of each operation on a pod.

use std::collections::BTreeMap;

use podward_core::{Operation, keys::Stage};
use serde::Serialize;

use super::{history::PodHistory, version::PodVersion};

/// One operation on one pod. Times are in milliseconds since the timeline started, and are those of the first version
/// with the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OperationRecord {
    /// The id.
    pub id: String,
    /// The type, if it was ever set.
    #[serde(rename = "type")]
    pub operation_type: Option<String>,
    /// The time of `operating/<id>`.
    pub began_ms: f64,
    /// The time of `operate/<id>`.
    pub operate_ms: Option<f64>,
    /// The time when `operating/<id>` was gone and the operation went on.
    pub finished_ms: Option<f64>,
    /// The time when no label of it was left.
    pub ended_ms: Option<f64>,
    /// The time when `service-available` was back.
    pub available_ms: Option<f64>,
    /// True if it ended without being finished.
    pub cancelled: bool,
    /// True if the gate was False in the version with `operate/<id>`.
    pub gate_off_at_operate: Option<bool>,
    /// True if no consumer held the pod in that version.
    pub free_at_operate: Option<bool>,
}

impl OperationRecord {
    /// Returns the time from the announcement to the permission, in milliseconds.
    #[must_use]
    pub fn begin_to_operate(&self) -> Option<f64> {
        Some(self.operate_ms? - self.began_ms)
    }

    /// Returns the time from the operator's finish until the pod was available, in milliseconds.
    #[must_use]
    pub fn finish_to_available(&self) -> Option<f64> {
        Some(self.available_ms? - self.finished_ms?)
    }
}

/// Returns all operations on a pod, in the order in which they began.
pub(super) fn operations(history: &PodHistory) -> Vec<OperationRecord> {
    let mut done = Vec::new();
    let mut open: BTreeMap<String, OperationRecord> = BTreeMap::new();
    for version in &history.versions {
        let now = version.operations();
        let over: Vec<String> =
            open.keys().filter(|id| !now.get(id).is_some_and(Operation::is_live)).cloned().collect();
        for id in over {
            if let Some(mut record) = open.remove(&id) {
                record.ended_ms = Some(version.at_ms);
                record.cancelled = record.finished_ms.is_none();
                done.push(record);
            }
        }
        for (id, operation) in now.iter() {
            let begun_again =
                operation.is_active() && open.get(id).is_some_and(|record| record.finished_ms.is_some());
            if begun_again && let Some(record) = open.remove(id) {
                done.push(OperationRecord { ended_ms: Some(version.at_ms), ..record });
            }
            if operation.is_active() && !open.contains_key(id) {
                let record = OperationRecord {
                    id: id.to_owned(),
                    began_ms: version.at_ms,
                    ..OperationRecord::default()
                };
                open.insert(id.to_owned(), record);
            }
            if let Some(record) = open.get_mut(id) {
                note(record, operation, version);
            }
        }
        if version.is_available() {
            let waiting = done.iter_mut().filter(|record| record.available_ms.is_none());
            waiting.for_each(|record| record.available_ms = Some(version.at_ms));
        }
    }
    done.extend(open.into_values());
    done.sort_by(|a, b| a.began_ms.total_cmp(&b.began_ms));
    done
}

fn note(record: &mut OperationRecord, operation: &Operation<'_>, version: &PodVersion) {
    if record.operation_type.is_none() {
        record.operation_type = operation.known_type().map(str::to_owned);
    }
    if operation.has(Stage::Operate) && record.operate_ms.is_none() {
        record.operate_ms = Some(version.at_ms);
        record.gate_off_at_operate = Some(version.gate == Some("False"));
        record.free_at_operate = Some(version.holders.is_empty());
    }
    let is_finished =
        !operation.has(Stage::Operating) && operation.has_any(&[Stage::Operate, Stage::Operated]);
    if is_finished && record.finished_ms.is_none() {
        record.finished_ms = Some(version.at_ms);
    }
}
