//! Operations, and their timeline.

use anstyle::Style;
use podward_core::history::{self, OperationRecord};
use podward_core::trace::trace_of;
use podward_core::{Operations, Pod, UnixNanos, deadline_of_message};
use podward_diagnosis::safe_text;
use podward_timeline::{Bar, Group, Timeline, duration};
use serde::Serialize;

use crate::lifecycle_message::lifecycle_message;
use crate::terminal::{BAD, LineStyle};

/// The columns of the text, on every terminal and in every file.
const WIDTH: usize = 80;

/// The styles of lines: bars of what should not be stand out.
pub(super) const STYLE: LineStyle = |_, line| if line.ends_with('!') { BAD } else { Style::new() };

/// The operations of a pod, or of the pods of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Traced {
    /// `KIND NAMESPACE/NAME`.
    pub(super) object: String,
    /// Whether the text names the pod of each operation.
    #[serde(skip)]
    pub(super) names_pods: bool,
    /// In the order in which they began.
    pub(super) operations: Vec<TracedOperation>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TracedOperation {
    pub(super) pod: String,
    pub(super) pod_uid: String,
    /// The id of the trace in the tracing system.
    pub(super) trace_id: String,
    #[serde(flatten)]
    pub(super) record: OperationRecord,
    /// What the pod waits for, if the operation goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits_for: Option<String>,
}

impl Traced {
    /// Returns the operations of `pod`; with `id`, only those with this id.
    pub(super) fn of_pod(pod: &Pod, id: Option<&str>) -> Self {
        let mut operations = TracedOperation::all_of(pod);
        operations.retain(|operation| id.is_none_or(|id| operation.record.id == id));
        let object = format!("pod {}/{}", pod.metadata.namespace, pod.metadata.name);
        Self { object, names_pods: false, operations }
    }

    /// Returns the timeline at the time `now`.
    pub(super) fn timeline(&self, now: UnixNanos) -> Timeline {
        let mut title = self.object.clone();
        if self.operations.is_empty() {
            title.push_str(": no operation goes on, and the history contains none");
        }
        let groups = self.operations.iter().map(|operation| operation.group(self.names_pods, now)).collect();
        Timeline { title, groups }
    }

    /// Returns the timeline as text.
    pub(super) fn text(&self, now: UnixNanos) -> String {
        podward_timeline::text(&self.timeline(now), WIDTH)
    }
}

impl TracedOperation {
    /// Returns the operations of `pod`.
    pub(super) fn all_of(pod: &Pod) -> Vec<Self> {
        let (view, metadata) = (pod.view(), &pod.metadata);
        let records = history::records(view.labels, metadata.annotations.history.as_deref());
        let mut operations = Self::of_records(&metadata.name, &metadata.uid, records);
        for operation in operations.iter_mut().filter(|operation| operation.record.outcome.is_none()) {
            operation.waits_for = Some(lifecycle_message(pod, &Operations::parse(view.labels)));
        }
        operations
    }

    /// Returns the operations in the history of a pod.
    pub(super) fn of_records(pod: &str, uid: &str, records: Vec<OperationRecord>) -> Vec<Self> {
        let operation = |record: OperationRecord| Self {
            pod: pod.to_owned(),
            pod_uid: uid.to_owned(),
            trace_id: trace_of(uid, &record.id).to_string(),
            record,
            waits_for: None,
        };
        records.into_iter().map(operation).collect()
    }

    fn group(&self, with_pod: bool, now: UnixNanos) -> Group {
        let record = &self.record;
        let goes_on = record.outcome.is_none();
        let is_overdue =
            self.waits_for.as_deref().and_then(deadline_of_message).is_some_and(|until| until <= now);
        let mut bars: Vec<_> =
            record.spans(now).map(|(phase, start, end)| Bar::new(phase.as_str(), start, end)).collect();
        if let Some(last) = bars.last_mut().filter(|_| goes_on) {
            (last.is_open, last.is_bad) = (true, is_overdue);
        }
        let lasted = duration(bars.last().map_or(0, |bar| bar.end));
        let state = record
            .outcome
            .map_or_else(|| "goes on for".to_owned(), |outcome| format!("{} after", outcome.as_str()));
        let pod = if with_pod { format!("pod {}: ", self.pod) } else { String::new() };
        let (id, kind, began) = (&record.id, &record.operation_type, record.began.to_rfc3339());
        let title = format!("{pod}{id} ({kind}): {state} {lasted}, began {began}");
        let notes = self.notes().iter().map(|note| safe_text(note)).collect();
        Group { title: safe_text(&title), bars, notes }
    }

    fn notes(&self) -> Vec<String> {
        let record = &self.record;
        let mut notes = Vec::new();
        let users = [("begun by", &record.begun_by), ("finished by", &record.finished_by)];
        let users: Vec<_> =
            users.into_iter().filter_map(|(what, user)| Some(format!("{what} {}", user.as_ref()?))).collect();
        if !users.is_empty() {
            notes.push(users.join(", "));
        }
        if !record.evidence.is_empty() {
            let levels = record.evidence.iter().map(|(hook, level)| format!("{hook} {level}"));
            notes.push(format!("evidence: {}", levels.collect::<Vec<_>>().join(", ")));
        }
        notes.extend(self.waits_for.as_ref().map(|message| format!("now: {message}")));
        notes
    }
}

#[cfg(test)]
mod tests {
    use podward_core::keys::{CONTROL_LABEL, HISTORY, Stage};
    use serde_json::json;

    use super::*;

    const BEGAN: i64 = 1_764_000_000_000_000_000;

    fn pod() -> Pod {
        let history = json!([{
            "id": "upgrade", "type": "update", "began": "2025-11-24T15:00:00.000Z", "begunBy": "jane",
            "finishedBy": "joe",
            "phases": [["PreChecking", 0], ["Preparing", 10], ["Operating", 8000], ["PostChecking", 60_000]],
            "evidence": {"lb": "PROVEN", "registry": "BOUNDED"}, "ended": 61_000, "outcome": "Completed",
        }]);
        serde_json::from_value(json!({"metadata": {
            "namespace": "shop", "name": "web-0", "uid": "u",
            "labels": {
                CONTROL_LABEL: "true",
                Stage::Operating.key("restart"): BEGAN.to_string(),
                Stage::PreCheck.key("restart"): BEGAN.to_string(),
                Stage::OperationType.key("restart"): "restart",
            },
            "annotations": {HISTORY: history.to_string()},
        }}))
        .unwrap()
    }

    #[test]
    fn past_and_present_operations_are_shown() {
        let traced = Traced::of_pod(&pod(), None);
        let shown = traced.text(UnixNanos(BEGAN + 3_000_000_000));
        let expected = "\
pod shop/web-0

upgrade (update): Completed after 61 s, began 2025-11-24T15:00:00Z
  PreChecking           10 ms  =
  Preparing             7.9 s  ======
  Operating              52 s        ==========================================
  PostChecking          1.0 s                                                  =
  begun by jane, finished by joe
  evidence: lb PROVEN, registry BOUNDED

restart (restart): goes on for 3.0 s, began 2025-11-24T16:00:00Z
  PreChecking          3.0 s…  =================================================
";
        assert!(shown.starts_with(expected), "{shown}");
        assert!(shown.contains("\n  now: operation restart (restart) "), "{shown}");
    }

    #[test]
    fn one_operation_can_be_chosen() {
        let traced = Traced::of_pod(&pod(), Some("upgrade"));
        assert_eq!((traced.operations.len(), traced.operations[0].waits_for.as_deref()), (1, None));
        let json = serde_json::to_value(&traced).unwrap();
        assert_eq!(json["operations"][0]["outcome"], "Completed");
        assert_eq!(json["operations"][0]["traceId"].as_str().unwrap().len(), 32);
        let none = Traced::of_pod(&pod(), Some("other"));
        assert!(none.timeline(UnixNanos(0)).title.ends_with("the history contains none"));
    }
}
