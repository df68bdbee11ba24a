//! Deletion requests: they are recorded on pods, begun, cancelled, postponed and executed.
//!
//! ```text
//!  any replica: DeletionRequestWriter::request
//!     │ replica count of the owner (read live), room in the disruption budget
//!     ▼
//!  deletion request on the pod
//!     │
//!     ▼
//!  the leader: Deletions::step ──► begin, cancel or postpone, in the write of the reconciliation
//!     │ pre-check of `pod-delete`: replica count, rollout, room in the disruption budget
//!     ▼
//!  the leader: Deletions::execute ──► DELETE or Eviction, once the operation has its permission
//! ```
//!
//! # Guarantees
//! - A workload's controller deletes no more pods than the workload has in excess. The pods are counted live when the
//!   request is recorded and when the pod is about to leave service. The count that decides is the last one before the
//!   delete. Only the leader makes it, for one owner at a time.
//! - A pod that its Deployment replaces leaves service only while enough other pods are in service for the rollout.
//! - An eviction for which a disruption budget has no room is refused while the pod serves. Room is reserved before the
//!   pod leaves service.
//! - Service accounts evict the pods of an owner that no disruption budget selects one at a time, except from a node
//!   that is being drained.
//! - A pod that is out of service for an eviction that the API server still refuses goes back into service. The
//!   eviction is tried again later.
//! - If a Job ends because its containers were restarted too often, its pods with the most restarts go last and together.
//! - A pod of a node that has not been Ready for too long is deleted without waiting for its consumers, if its deletion
//!   is requested.
//!
//! # What is read
//! Owners and budgets are read live when a decision depends on them, with requests for metadata only, except where the
//! restarts of a Job's pods count. A cache of all of them would cost memory and events for many objects without deletion
//! requests, and could be out of date when it matters. Requests and pods that wait while an owner is read share the next
//! read. A single owner or budget is *watched* only while a pod waits for it (`watches.rs`), so that the pod does not miss
//! the change that it waits for.
#![forbid(unsafe_code)]

mod budgets;
mod deletions;
mod dry_runs;
mod execution;
mod joint_count;
mod joint_deletions;
mod joint_waits;
mod last_timeout;
mod lost_nodes;
mod metrics;
mod owners;
mod postponement;
mod read_time;
mod recording;
mod requesters;
mod shared_reads;
mod step;
#[cfg(test)]
mod tests;
mod waiting_rollouts;
mod watches;

pub use deletions::Deletions;
pub use execution::{DeletionOutcome, is_due};
pub use lost_nodes::LostNodes;
pub use metrics::DeletionMetrics;
pub use recording::{DeletionRefusal, DeletionRequestWriter, KnownPods};
pub use step::DeletionStep;
