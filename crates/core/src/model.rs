//! The model of a pod: its labels, annotations, finalizers and conditions, and the operations that they describe.

pub(crate) mod deletion_request;
pub(crate) mod expected_finalizers;
pub(crate) mod hook_keys;
pub(crate) mod incomplete;
pub mod keys;
pub(crate) mod label_changes;
pub(crate) mod lost_type;
pub(crate) mod operations;
pub(crate) mod phase;
pub(crate) mod pod;
pub(crate) mod time;
pub(crate) mod view;
