//! Deletion requests: who requested the deletion of a pod, when and how. The annotation
//! [`DELETION_REQUEST`](crate::keys::DELETION_REQUEST) keeps a request until the pod is gone or the request is
//! withdrawn.
//!
//! The label [`TO_DELETE`](crate::keys::TO_DELETE), whose removal withdraws the request, and the operation
//! [`DELETE_OPERATION`](crate::keys::DELETE_OPERATION) belong to a request. [`record`] and [`cancel`] return the
//! changes to write, and [`intent`] reads the state.

mod carried;
mod changes;
mod intent;

pub use crate::model::deletion_request::{DeletionKind, DeletionRequest, JointState};
pub use carried::DeletionMarks;
pub use changes::{DeletionRequestChanges, begin, cancel, join, postpone, record, replace};
pub use intent::{CancelledBy, DeletionIntent, intent};
