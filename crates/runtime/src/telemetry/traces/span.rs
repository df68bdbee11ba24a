//! A span that a service sends.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, Link, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use podward_core::UnixNanos;
use podward_core::trace::{SpanId, TraceId};

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct NewSpan {
    /// Its trace.
    pub trace: TraceId,
    /// Its ID.
    pub id: SpanId,
    /// Its parent span; `None` for the root.
    pub parent: Option<SpanId>,
    /// A call (client), the answer to one (server), or neither (internal).
    pub kind: SpanKind,
    /// Its name. There must be few different ones.
    pub name: Cow<'static, str>,
    /// Its start.
    pub start: UnixNanos,
    /// Its end.
    pub end: UnixNanos,
    /// Its attributes.
    pub attributes: Vec<KeyValue>,
    /// Its events, each with a name, a time and attributes.
    pub events: Vec<(&'static str, UnixNanos, Vec<KeyValue>)>,
    /// Related spans of other traces.
    pub links: Vec<(TraceId, SpanId)>,
    /// The error; `None` if there was none.
    pub error: Option<String>,
}

impl From<NewSpan> for SpanData {
    fn from(span: NewSpan) -> Self {
        let mut events = SpanEvents::default();
        let event = |(name, at, attributes)| Event::new(name, system_time(at), attributes, 0);
        events.events = span.events.into_iter().map(event).collect();
        let mut links = SpanLinks::default();
        let link = |(trace, id)| Link::with_context(context(trace, id));
        links.links = span.links.into_iter().map(link).collect();
        SpanData {
            span_context: context(span.trace, span.id),
            parent_span_id: span.parent.map_or(opentelemetry::SpanId::INVALID, span_id),
            parent_span_is_remote: false,
            span_kind: span.kind,
            name: span.name,
            start_time: system_time(span.start),
            end_time: system_time(span.end),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events,
            links,
            status: span.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: InstrumentationScope::builder("podward")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

/// Returns the ID of a span that no other process needs to know.
#[must_use]
pub fn random_span_id() -> SpanId {
    SpanId(fastrand::u64(1..).to_be_bytes())
}

fn context(trace: TraceId, id: SpanId) -> SpanContext {
    let trace = opentelemetry::TraceId::from_bytes(trace.0);
    SpanContext::new(trace, span_id(id), TraceFlags::SAMPLED, false, TraceState::NONE)
}

fn span_id(id: SpanId) -> opentelemetry::SpanId {
    opentelemetry::SpanId::from_bytes(id.0)
}

/// Times before 1970 become 1970.
fn system_time(at: UnixNanos) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(at.0).unwrap_or_default())
}
