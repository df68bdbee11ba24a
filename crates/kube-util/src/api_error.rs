//! Errors of requests to the API server about one pod.

use std::time::Duration;

use podward_runtime::retry::{ApiCallError, api_call};
use thiserror::Error;

use crate::pod_key::PodKey;

/// A request about one pod failed. The reconciliation of that pod is retried; other pods are not affected.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The pod was changed after it was read (409).
    #[error(
        "could not {what} pod {pod}: it was changed by another writer; it is reconciled again with that change"
    )]
    Conflict {
        /// The attempted action, a verb phrase such as `read the owner of`.
        what: &'static str,
        /// The pod.
        pod: PodKey,
    },
    /// The pod does not exist any more (404).
    #[error("could not {what} pod {pod}: it is gone")]
    Gone {
        /// The attempted action, a verb phrase such as `read the owner of`.
        what: &'static str,
        /// The pod.
        pod: PodKey,
    },
    /// The API server rejected the request (400, 403 or 422).
    #[error(
        "could not {what} pod {pod}: refused ({source}); check the RBAC of the lifecycle-controller and admission \
         policies"
    )]
    Refused {
        /// The attempted action, a verb phrase such as `read the owner of`.
        what: &'static str,
        /// The pod.
        pod: PodKey,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The API server or the connection failed in another way.
    #[error("could not {what} pod {pod}: {source}; retried with back-off")]
    Api {
        /// The attempted action, a verb phrase such as `read the owner of`.
        what: &'static str,
        /// The pod.
        pod: PodKey,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error(
        "could not {what} pod {pod}: no answer from the API server within {after:?}; retried with back-off"
    )]
    TimedOut {
        /// The attempted action, a verb phrase such as `read the owner of`.
        what: &'static str,
        /// The pod.
        pod: PodKey,
        /// The deadline.
        after: Duration,
    },
}

impl ApiError {
    /// Classifies `source`, the failure of an attempt to do `what` (a verb phrase such as `read the owner of`) to
    /// `pod`.
    #[must_use]
    pub fn api(what: &'static str, pod: PodKey, source: kube::Error) -> Self {
        let code = match &source {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        match code {
            409 => ApiError::Conflict { what, pod },
            404 => ApiError::Gone { what, pod },
            400 | 403 | 422 => ApiError::Refused { what, pod, source: Box::new(source) },
            _ => ApiError::Api { what, pod, source: Box::new(source) },
        }
    }

    /// True if another writer was faster.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, ApiError::Conflict { .. })
    }

    /// Returns the value of the label `category` of the metric `podward_errors_total`.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            ApiError::Conflict { .. } => "conflict",
            ApiError::Gone { .. } => "gone",
            ApiError::Refused { .. } => "refused",
            ApiError::Api { .. } => "api",
            ApiError::TimedOut { .. } => "timeout",
        }
    }
}

/// Waits for the answer to one request about `pod`, at most
/// [`API_TIMEOUT`](podward_runtime::retry::API_TIMEOUT). `what` is the attempted action, a verb phrase such as
/// `read the owner of`.
///
/// # Errors
///
/// When the request fails; see [`ApiError`].
pub async fn pod_call<T>(
    what: &'static str,
    pod: &PodKey,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiError> {
    api_call(call).await.map_err(|error| match error {
        ApiCallError::Failed(source) => ApiError::api(what, pod.clone(), *source),
        ApiCallError::TimedOut(after) => ApiError::TimedOut { what, pod: pod.clone(), after },
    })
}
