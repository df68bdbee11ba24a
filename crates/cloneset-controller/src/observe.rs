//! From the objects of the API server to what the plan reads.

mod pod;
mod ready;
mod set;

pub(crate) use pod::{Observed, ObservedPod, Observer, is_active, observe};
pub(crate) use ready::{NotReadyKey, condition, not_ready_list};
pub(crate) use set::spec_of;
