//! Deletion of pods: requests on pods, deletes that are held, replica counts of workloads ([`Workload`]) and disruption
//! budgets ([`DisruptionBudget`]). The lifecycle-controller reads the numbers from the API server.

mod budget;
pub mod hold;
mod joint;
mod label_author;
pub mod request;
mod rollout;
mod rulings;
mod withdrawal;
mod workload;
pub mod writes;

pub use budget::{
    DisruptionBudget, EvictionPod, EvictionRoom, RENEW_AFTER, RESERVATION_LASTS, ReservedEviction,
    eviction_room, still_covers,
};
pub use joint::JointDeletion;
pub use label_author::{LabelAuthor, names_requester, with_label_author};
pub use rollout::{Rollout, RolloutPod};
pub use rulings::WorkloadRulings;
pub use withdrawal::Withdrawal;
pub use workload::{DeletionProgress, Ruling, Workload, WorkloadPod, WorkloadPodRequest, is_by_workload};
