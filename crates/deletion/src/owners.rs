//! The owners of pods: how many pods each one wants, how many it has, and what that means for a deletion request.

mod count_time;
mod pod_counts;
mod pod_list;
mod replica_counts;
mod rollouts;
mod shared_counts;

pub(super) use pod_counts::{OwnerCounts, read as read_counts};
pub(super) use replica_counts::ReplicaCounts;
pub(super) use rollouts::Rollouts;
pub(super) use shared_counts::SharedCounts;
