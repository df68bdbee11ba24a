//! Deletes and evictions: which are allowed, and which are held.
//!
//! [`podward_core::deletion::hold`] decides. This module collects the facts, has deletion requests recorded, and
//! answers the callers. A caller gets an immediate answer if the review and the caches suffice for it. So does a caller
//! that repeats a request that is already recorded on the pod.
//!
//! ```text
//!  deletion_hold ──► judge ──► podward_core::deletion::hold
//!                      ├──► cluster_state     nodes and namespaces, from caches or the API server
//!                      ├──► request_recorder ──► controller_client ──► lifecycle-controller
//!                      ├──► delete_waiter     waits until the pod is drained (--wait)
//!                      ├──► repeat_limit      delays controllers that repeat deletes
//!                      └──► events, metrics
//! ```

mod cluster_state;
mod controller_client;
mod delete_waiter;
mod deletion_hold;
mod incoming_deletion;
mod judge;
mod metrics;
mod repeat_limit;
mod request_recorder;

pub use controller_client::ControllerClient;
pub use deletion_hold::DeletionHold;
pub use judge::HoldOptions;
pub use request_recorder::RequestRecorder;
