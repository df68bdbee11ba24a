//! Why a wish is not recorded.

use thiserror::Error;

use crate::cached_pod::PodKey;
use crate::error::Error as ApiError;

/// Why a request to delete or evict a pod came to nothing. The pod is as it was.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("there is no pod {0}")]
    NotFound(PodKey),
    #[error("pod {pod} has UID {actual} and not {expected}: it is another pod by that name")]
    WrongUid { pod: PodKey, expected: String, actual: String },
    #[error("pod {0} has not opted in (label kusionstack.io/control=true): delete it without asking Podward")]
    NotOptedIn(PodKey),
    /// Budget, or owner's numbers. The text is for the caller as it is.
    #[error("{0}")]
    NoRoom(String),
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl Refusal {
    /// The value of a metric's label.
    pub(crate) const fn outcome(&self) -> &'static str {
        match self {
            Refusal::NotFound(_) | Refusal::WrongUid { .. } => "not_found",
            Refusal::NotOptedIn(_) => "not_opted_in",
            Refusal::NoRoom(_) => "refused",
            Refusal::Api(_) => "failed",
        }
    }
}
