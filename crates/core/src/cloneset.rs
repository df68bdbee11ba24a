//! CloneSets: which pods are created, changed and deleted next.
//!
//! [`plan`] decides from the set and its pods. It follows the lifecycle of OpenKruise's CloneSet: the states in the label
//! [`STATE_LABEL`](keys::STATE_LABEL), and the markers (labels and finalizers) that an operator puts on a pod and takes
//! from it. A marker means "the pod is in use": present, the pod must not be touched; absent, it may be.
//!
//! # Guarantees
//! Property tests check them with operators, kubelets, users and crashes in random order:
//!
//! - Of the pods that are available, no more are updated or deleted than `maxUnavailable` allows; pods that are missing or
//!   not available count.
//! - There are never more pods than `replicas` and `maxSurge`, but those that already exist.
//! - No more pods have the new revision than `partition` leaves.
//! - A pod is changed in place, or deleted, only while no marker of its hook is left, or after the deadline of a hook without
//!   which it may go on. Exactly the hooks are asked whose markers the pod has.
//! - Whatever the order of events, the set reaches its wanted state when the operators answer.

mod amount;
mod delete_hold;
mod draft;
mod hook;
pub mod keys;
mod need;
mod plan;
mod pod;
mod put_back;
mod refresh;
mod removal;
mod scale;
mod scatter;
mod set;
mod state;
mod status;
mod step;
mod update;
mod wait;

pub use amount::Amount;
pub use delete_hold::DeleteHold;
pub use draft::{Creations, Plan};
pub use hook::{Hook, Lifecycle};
pub use plan::plan;
pub use pod::{NotReadyKeys, Operation, PodRevision, SetPod, UpdateProgress};
pub use put_back::PutBack;
pub use set::{SetSpec, UpdateKind};
pub use state::State;
pub use status::{SetCounts, count};
pub use step::{OperationStep, PodStep, Previous, Rearm};
pub use wait::{HookKind, HookWait, wait};
