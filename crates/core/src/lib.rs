//! The engine of Podward: pure functions over the labels, finalizers and conditions of a pod.
#![forbid(unsafe_code)]
mod admit;
mod advance;
mod expected;
mod explain;
mod gate;
pub mod keys;
mod operations;
mod patch;
mod phase;
mod plan;
mod pod;
mod time;
mod view;
pub use admit::{Review, ReviewPolicy, Writer, on_create, on_update, review, review_raw};
pub use advance::advance;
pub use expected::{ExpectedFinalizers, InvalidAvailableConditions, service_of, without_employers};
pub use explain::{Explanation, explain};
pub use gate::{available, desired_gate, gate_to_write, may_operate};
pub use operations::{Operation, Operations, UNKNOWN_TYPE};
pub use patch::LabelChanges;
pub use phase::Phase;
pub use plan::{CheckResult, Checks, NoRules, plan_labels};
pub use pod::Pod;
pub use time::UnixNanos;
pub use view::{ConditionStatus, PodView};
