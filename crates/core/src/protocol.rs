//! The protocol: which labels, finalizers and conditions follow from the state of a pod.

pub(crate) mod advance;
pub(crate) mod checks;
pub(crate) mod gate;
pub(crate) mod objection;
pub(crate) mod plan_labels;
pub(crate) mod preparing_to_delete;
pub mod refusals;
