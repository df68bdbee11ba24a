//! Traces of operations by OpenTelemetry: one trace per operation, a span per phase, and a span per call to a hook or
//! to the webhook of a rule.
//!
//! ```text
//!  versions of a pod, reports of hooks ──► OperationTraces ──► spans of operations and phases ──► runtime::telemetry
//!  a call begins ──► hook_call, webhook_call ──► CallSpan ──► span of the call, child of the phase
//!  a call arrives ──► AnswerSpan ──► span of the answer, child of the call
//! ```
//!
//! The ids of a trace follow from the pod and the operation ([`podward_core::trace`]). All state of this crate may be
//! lost at any time: then a trace has fewer spans.
//!
//! The leader emits the span of a phase when it sees that the phase has ended, and the root span when it sees that the
//! operation has ended. A span is emitted once, except while a former leader does not know yet that it lost the lease:
//! then two processes emit the same span with the same id.
#![forbid(unsafe_code)]

mod answer_span;
mod call_span;
mod operation_traces;
mod spans;

pub use answer_span::AnswerSpan;
pub use call_span::{CallSpan, RuleWebhookCall};
pub use operation_traces::OperationTraces;
