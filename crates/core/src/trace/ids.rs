//! Ids of traces and spans, and the `traceparent` header.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::model::keys::Stage;
use crate::model::phase::OperationPhase;
use crate::model::time::UnixNanos;

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// Returns the trace of the operation `id` on the pod with this UID.
///
/// ```
/// let trace = podward_core::trace::trace_of("5b1c1f6e-0000-4000-8000-000000000001", "upgrade");
/// // printf %s 5b1c1f6e-0000-4000-8000-000000000001/upgrade | sha256sum | cut -c-32
/// assert_eq!(trace.to_string(), "9b26253b9edadbb3d5f46238209321e5");
/// ```
#[must_use]
pub fn trace_of(uid: &str, id: &str) -> TraceId {
    TraceId(prefix(&[uid, id]))
}

/// Returns the root span of a run of the operation `id`. `run` is the value of its label [`Stage::Operating`].
#[must_use]
pub fn root_of(uid: &str, id: &str, run: &str) -> SpanId {
    SpanId(prefix(&[uid, id, run]))
}

/// Returns the span of a phase of a run that began at `start`.
#[must_use]
pub fn span_of(uid: &str, id: &str, run: &str, phase: OperationPhase, start: UnixNanos) -> SpanId {
    SpanId(prefix(&[uid, id, run, phase.as_str(), &start.to_string()]))
}

/// Returns the id of the operation that a label belongs to, or `None` for other labels.
#[must_use]
pub fn operation_of(label: &str) -> Option<&str> {
    match crate::keys::Key::parse(label) {
        crate::keys::Key::Stage(_, id) => Some(id),
        _ => None,
    }
}

/// Returns the label whose value identifies the run.
#[must_use]
pub fn run_label(id: &str) -> String {
    Stage::Operating.key(id)
}

/// Returns the first bytes of the digest of `parts`. The parts contain no slash.
fn prefix<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut digest = Sha256::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            digest.update("/");
        }
        digest.update(part);
    }
    let mut bytes = [0; N];
    bytes.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    bytes
}

impl TraceId {
    /// Returns the `traceparent` header of W3C Trace Context for calls within `parent`.
    #[must_use]
    pub fn traceparent(self, parent: SpanId) -> String {
        format!("00-{self}-{parent}-01")
    }
}

/// Reads a `traceparent` header: the trace and the span of the caller. Returns `None` when it is invalid or not
/// sampled.
#[must_use]
pub fn parse_traceparent(text: &str) -> Option<(TraceId, SpanId)> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let [version] = bytes(version)?;
    let [flags] = bytes(flags)?;
    let (trace, span) = (bytes(trace)?, bytes(span)?);
    let is_whole = version != 0xff && (version != 0 || parts.next().is_none());
    let is_kept = flags & 1 == 1;
    (is_whole && is_kept && trace != [0; 16] && span != [0; 8]).then_some((TraceId(trace), SpanId(span)))
}

fn bytes<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if hex.len() != 2 * N || !hex.bytes().all(is_hex) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, index) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(hex.get(index..index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_in_everything_that_they_are_made_of() {
        assert_eq!(trace_of("u", "a"), trace_of("u", "a"));
        assert_ne!(trace_of("u", "a"), trace_of("u", "b"));
        assert_ne!(trace_of("ua", ""), trace_of("u", "a"));
        assert_ne!(root_of("u", "a", "1"), root_of("u", "a", "2"));
        let span = |run, phase, start| span_of("u", "a", run, phase, UnixNanos(start));
        let one = span("1", OperationPhase::Preparing, 5);
        for other in [
            span("2", OperationPhase::Preparing, 5),
            span("1", OperationPhase::Operating, 5),
            span("1", OperationPhase::Preparing, 6),
            root_of("u", "a", "1"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_traceparent_reads_back() {
        let (trace, span) = (trace_of("u", "a"), root_of("u", "a", "1"));
        let text = trace.traceparent(span);
        assert_eq!(text.len(), 55);
        assert_eq!(parse_traceparent(&text), Some((trace, span)));
        let later = format!("01{}-more", &text[2..]);
        assert_eq!(parse_traceparent(&later), Some((trace, span)), "later versions may say more");
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-00"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}x-{span}-01"),
            format!("00-+{}-{span}-01", &trace[1..]),
            format!("00-é{}-{span}-01", &trace[2..]),
        ] {
            assert_eq!(parse_traceparent(&text), None, "{text}");
        }
    }

    #[test]
    fn labels_tell_their_operation() {
        assert_eq!(operation_of(&run_label("upgrade")), Some("upgrade"));
        assert_eq!(operation_of("app"), None);
    }
}
