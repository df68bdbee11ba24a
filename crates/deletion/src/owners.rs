//! The owners of pods: how many pods each one wants, how many it has, and what that means for a deletion request.

mod evictions;
mod pod_counts;
mod pod_list;
mod replica_counts;
mod rollouts;

pub(super) use evictions::{is_being_evicted, unfinished_evictions};
pub(super) use pod_counts::{OwnerCounts, read as read_counts};
pub(super) use pod_list::ListedPart;
#[cfg(test)]
pub(super) use pod_list::PAGE_SIZE;
pub(super) use replica_counts::ReplicaCounts;
pub(super) use rollouts::Rollouts;
