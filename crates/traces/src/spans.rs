//! The names, attributes and events of the spans of operations and phases.

use podward_core::HookEvent;
use podward_core::hooks::EvidenceLevel;
use podward_core::trace::{OperationSpan, SpanHookReport, SpanKind as Of};
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind};

use podward_kube_util::PodKey;

/// The operation that a span belongs to.
pub(crate) struct OperationRef<'a> {
    pub(crate) key: &'a PodKey,
    pub(crate) uid: &'a str,
    pub(crate) id: &'a str,
    pub(crate) operation_type: &'a str,
}

impl OperationRef<'_> {
    pub(crate) fn attributes(&self) -> Vec<KeyValue> {
        vec![
            KeyValue::new("k8s.namespace.name", self.key.namespace.clone()),
            KeyValue::new("k8s.pod.name", self.key.name.clone()),
            KeyValue::new("k8s.pod.uid", self.uid.to_owned()),
            KeyValue::new("podward.operation.id", self.id.to_owned()),
            KeyValue::new("podward.operation.type", self.operation_type.to_owned()),
        ]
    }
}

/// Returns the span to emit for `span` of the operation `about`.
pub(crate) fn new(span: OperationSpan, about: &OperationRef<'_>) -> NewSpan {
    let mut attributes = about.attributes();
    let (name, events) = match span.kind {
        Of::Run { outcome, first, evidence } => {
            attributes.push(KeyValue::new("podward.operation.outcome", outcome.as_str()));
            attributes.push(KeyValue::new("podward.operation.first_phase", first.as_str()));
            attributes.extend(evidence.map(weakest));
            (format!("operation {}", about.operation_type).into(), Vec::new())
        }
        Of::Phase { phase, reports } => {
            attributes.extend(reports.iter().filter_map(level).max().map(weakest));
            (phase.as_str().into(), reports.into_iter().map(event).collect())
        }
    };
    NewSpan {
        trace: span.trace,
        id: span.id,
        parent: span.parent,
        kind: SpanKind::Internal,
        name,
        start: span.start,
        end: span.end,
        attributes,
        events,
        links: Vec::new(),
        error: None,
    }
}

fn weakest(level: EvidenceLevel) -> KeyValue {
    KeyValue::new("podward.evidence", level.as_str())
}

fn level(report: &SpanHookReport) -> Option<EvidenceLevel> {
    match report.note.event {
        HookEvent::Done(level) => Some(level),
        HookEvent::Proceeded => Some(EvidenceLevel::TimedOut),
        _ => None,
    }
}

/// Returns the event of the phase for a report of a hook.
fn event(report: SpanHookReport) -> (&'static str, podward_core::UnixNanos, Vec<KeyValue>) {
    let mut attributes = vec![
        KeyValue::new("podward.hook", report.note.hook.clone()),
        KeyValue::new("podward.hook.phase", report.note.phase.as_str()),
    ];
    attributes.extend(level(&report).map(weakest));
    if let HookEvent::Rejected(reason) = &report.note.event {
        attributes.push(KeyValue::new("podward.hook.message", reason.clone()));
    }
    let name = match report.note.event {
        HookEvent::Done(_) => "hook done",
        HookEvent::Rejected(_) => "hook rejected",
        HookEvent::Overdue => "hook overdue",
        HookEvent::Proceeded => "hook timed out, proceeded",
        HookEvent::Cancelled(_) => "hook timed out, cancelled",
        HookEvent::Removed => "hook removed",
        HookEvent::Released => "hook released",
    };
    (name, report.at, attributes)
}
