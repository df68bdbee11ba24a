//! Reasons not to record a deletion request.

use podward_kube_util::{ApiError, PodKey};
use thiserror::Error;

/// The reason why a deletion request was not recorded. The pod is unchanged.
#[derive(Debug, Error)]
pub enum DeletionRefusal {
    /// The pod does not exist.
    #[error("there is no pod {0}")]
    NotFound(PodKey),
    /// The pod was replaced by another one with the same name.
    #[error("pod {pod} has UID {actual} and not {expected}: it is another pod with the same name")]
    WrongUid {
        /// The pod.
        pod: PodKey,
        /// The UID in the request.
        expected: String,
        /// The UID of the stored pod.
        actual: String,
    },
    /// The pod has not opted in, and no hook of a CloneSet holds it.
    #[error("pod {0} has not opted in (label kusionstack.io/control=true): delete it directly")]
    NotOptedIn(PodKey),
    /// A disruption budget or the owner's number of pods does not allow the deletion, or a service account evicts
    /// another pod of the owner and no budget selects the pod. The text is for the caller, who may try again.
    #[error("{0}")]
    NoRoom(String),
    /// A request to the API server failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl DeletionRefusal {
    /// Returns the value of the metric label `outcome`.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self {
            DeletionRefusal::NotFound(_) | DeletionRefusal::WrongUid { .. } => "not_found",
            DeletionRefusal::NotOptedIn(_) => "not_opted_in",
            DeletionRefusal::NoRoom(_) => "refused",
            DeletionRefusal::Api(_) => "failed",
        }
    }
}
