//! The ids of traces and spans. They follow from the labels of the pod, so that every component, inside Podward or
//! outside, can add spans to the trace of an operation.
//!
//! | id | of |
//! |---|---|
//! | trace | the first 16 bytes of SHA-256 of `<pod UID>/<operation id>` |
//! | the run's span, the root | the first 8 bytes of SHA-256 of `<pod UID>/<operation id>/<run>` |
//! | a phase's span | the first 8 bytes of SHA-256 of `<pod UID>/<operation id>/<run>/<phase>/<nanoseconds at which it began>` |
//!
//! Operators reuse an id on a pod that they change in place. All runs are in one trace. The *run*, the value of the
//! label `operating.podopslifecycle.kusionstack.io/<operation id>`, tells them apart.

mod ids;
mod run;

pub use ids::{SpanId, TraceId, operation_of, parse_traceparent, root_of, run_label, span_of, trace_of};
pub use run::{OperationRun, OperationSpan, RunOutcome, SpanHookReport, SpanKind};
pub(crate) use run::{has_finished, phase_of, starts};
