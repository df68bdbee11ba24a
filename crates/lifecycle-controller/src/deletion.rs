//! Deletions: wishes are recorded, begun, cancelled and carried out.
//!
//! ```text
//!  any replica                                   the leader
//!  Requests::request ──► wish on the pod ──►  Deletions::step ─► begin, cancel, put off: merged into reconcile's write
//!     │ owner's numbers (live)                    │  pre-check of `pod-delete`: owner's numbers, rollout, budget
//!     └ room in the budget                        └► carry_out: DELETE or Eviction, once `operate/pod-delete` is there
//! ```
//!
//! # Guarantees
//! - A workload's own controller gets no more pods than it has too many. Counted live when the wish is recorded, when the pod may
//!   leave service, and, authoritatively, at the last moment before the delete, by the leader alone and one owner at a time.
//! - A pod that its Deployment replaces leaves service only while as many others are in service as the rollout is to keep.
//! - An eviction that a disruption budget has no room for is refused while the pod serves; room is taken before it leaves service.
//! - A pod that is out of service for an eviction that is refused all the same comes back, and is tried again later.
//! - A pod of a node that has not been Ready for too long is deleted without waiting for its consumers, if somebody wished it.
//!
//! # What is read, and why so
//! Owners and budgets are read live, at the moments that decide, by requests that carry metadata alone: a cache of all of them would
//! cost memory and events for the many that have no wish, and could be old just when it counts. So that nobody waits for a moment that
//! has passed, an owner or budget is *watched* by itself while a pod waits for it ([`watches`]), and only then.

mod budgets;
mod carry_out;
mod ledger;
mod lost_nodes;
mod metrics;
mod patch;
mod refusal;
mod request;
mod rollouts;
mod step;
#[cfg(test)]
mod tests;
mod watches;
pub(crate) mod workloads;

pub(crate) use carry_out::{Outcome, is_due};
pub(crate) use lost_nodes::LostNodes;
pub(crate) use metrics::DeletionMetrics;
pub(crate) use refusal::Refusal;
pub(crate) use request::Requests;
pub(crate) use step::{Deletions, Step};
