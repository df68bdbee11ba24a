//! What the spans of operations and phases say.

use podward_core::HookEvent;
use podward_core::hooks::EvidenceLevel;
use podward_core::trace::{Heard, Span, SpanKind as Of};
use podward_runtime::telemetry::traces::{KeyValue, NewSpan, SpanKind};

use crate::cached_pod::PodKey;

/// What a span is about.
pub(super) struct About<'a> {
    pub(super) key: &'a PodKey,
    pub(super) uid: &'a str,
    pub(super) id: &'a str,
    pub(super) operation_type: &'a str,
}

impl About<'_> {
    pub(super) fn attributes(&self) -> Vec<KeyValue> {
        vec![
            KeyValue::new("k8s.namespace.name", self.key.namespace.clone()),
            KeyValue::new("k8s.pod.name", self.key.name.clone()),
            KeyValue::new("k8s.pod.uid", self.uid.to_owned()),
            KeyValue::new("podward.operation.id", self.id.to_owned()),
            KeyValue::new("podward.operation.type", self.operation_type.to_owned()),
        ]
    }
}

/// `span`, about this.
pub(super) fn new(span: Span, about: &About<'_>) -> NewSpan {
    let mut attributes = about.attributes();
    let (name, events) = match span.kind {
        Of::Run { outcome, first, evidence } => {
            attributes.push(KeyValue::new("podward.operation.outcome", outcome.as_str()));
            attributes.push(KeyValue::new("podward.operation.first_phase", first.as_str()));
            attributes.extend(evidence.map(weakest));
            (format!("operation {}", about.operation_type).into(), Vec::new())
        }
        Of::Phase { phase, heard } => {
            attributes.extend(heard.iter().filter_map(level).max().map(weakest));
            (phase.as_str().into(), heard.into_iter().map(event).collect())
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

fn level(heard: &Heard) -> Option<EvidenceLevel> {
    match heard.note.event {
        HookEvent::Done(level) => Some(level),
        HookEvent::Proceeded => Some(EvidenceLevel::TimedOut),
        _ => None,
    }
}

/// An answer that was acted on is an event of its phase.
fn event(heard: Heard) -> (&'static str, podward_core::UnixNanos, Vec<KeyValue>) {
    let mut attributes = vec![
        KeyValue::new("podward.hook", heard.note.hook.clone()),
        KeyValue::new("podward.hook.phase", heard.note.phase.as_str()),
    ];
    attributes.extend(level(&heard).map(weakest));
    if let HookEvent::Rejected(reason) = &heard.note.event {
        attributes.push(KeyValue::new("podward.hook.message", reason.clone()));
    }
    let name = match heard.note.event {
        HookEvent::Done(_) => "hook done",
        HookEvent::Rejected(_) => "hook rejected",
        HookEvent::Overdue => "hook overdue",
        HookEvent::Proceeded => "hook timed out, proceeded",
        HookEvent::Cancelled(_) => "hook timed out, cancelled",
        HookEvent::Removed => "hook removed",
        HookEvent::Released => "hook released",
    };
    (name, heard.at, attributes)
}
