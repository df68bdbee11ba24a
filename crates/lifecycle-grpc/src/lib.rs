//! The gRPC services of the lifecycle-controller: `HookRegistry` and `Lifecycle` of `proto/podward/v1`.
//!
//! ```text
//!  Register, Deregister, List ──► LifecycleHook resources
//!  Attach ──────────────────────► AttachHub of the leader; other replicas relay the stream to the leader
//!  Begin, Finish, Cancel ───────► labels of the pod, as a client of the label protocol writes them
//!  Busy ────────────────────────► annotations of the pod
//!  RequestDeletion ─────────────► DeletionRecorder
//!  Get, Watch ──────────────────► state of the pod
//! ```
//!
//! # Guarantees
//! - Every caller is authenticated by its Kubernetes token and authorized by RBAC before anything else happens. The right
//!   to a stream is checked again while the stream lasts.
//! - Every write has a precondition on the UID and the resource version of the object that it was decided on. After a
//!   conflict, the call decides again. Nothing is written if nothing would change, so every call can be repeated.
//! - Every replica serves all calls. Only `Attach` needs a leader.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod busy;
mod callers;
mod convert;
mod deletion_recorder;
mod describe;
mod hook_store;
mod hub;
mod lifecycle;
mod list_limit;
mod operations;
mod pod_change;
mod pod_target;
mod pods;
mod registry;
mod relay;
mod revocation;
mod serve;
mod status;
mod stream_limit;
mod warnings;
mod watch;
mod write_rights;

pub use args::GrpcArgs;
pub use convert::{from_resource, to_resource};
pub use deletion_recorder::DeletionRecorder;
pub use describe::describe;
pub use hub::AttachHub;
pub use operations::check_operation;
pub use serve::{GrpcPortMetrics, MAX_REQUEST_BYTES, ServiceDependencies, listen, services};
