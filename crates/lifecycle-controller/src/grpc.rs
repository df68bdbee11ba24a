//! What the controller serves over gRPC, on every replica: `HookRegistry` and `Lifecycle` of `proto/podward/v1`.
//!
//! ```text
//!  Register, Deregister, List ──► LifecycleHook resources
//!  Attach ──────────────────────► the leader's AttachHub; relayed there by replicas that don't lead
//!  Begin, Finish, Cancel ───────► labels of the pod, as a client of the label protocol would write them
//!  Busy ────────────────────────► annotations of the pod
//!  RequestDeletion ─────────────► Deletions
//!  Get, Watch ──────────────────► the pod
//! ```
//!
//! # Guarantees
//! - Nothing is done for a caller that Kubernetes doesn't know, or whose rights don't cover it.
//! - Every write carries UID and resource version of what it was decided on, is decided anew when somebody else was faster, and is
//!   left out when nothing would change. So every call may be repeated.
//! - Calls need no leader, `Attach` excepted.

mod args;
mod attach;
mod busy;
mod callers;
mod change;
mod convert;
mod describe;
mod lifecycle;
mod limits;
mod pods;
mod registry;
mod relay;
mod serve;
mod status;
mod store;
mod warnings;
mod watch;

pub(crate) use args::GrpcArgs;
pub(crate) use attach::{AttachHub, Attachment};
pub(crate) use lifecycle::{Asked, Deletions};
pub(crate) use serve::{Metrics, Parts, listen, services};

#[cfg(test)]
mod tests;
