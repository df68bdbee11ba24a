//! What can go wrong with one pod.

use std::time::Duration;

use thiserror::Error;

use crate::cached_pod::PodKey;

/// Why a reconciliation of one pod didn't get through. It is tried again; other pods are not held up.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error(
        "could not {what} pod {pod}: somebody else wrote to it first; it is looked at again with what they wrote"
    )]
    Conflict { what: &'static str, pod: PodKey },
    #[error("could not {what} pod {pod}: it is gone")]
    Gone { what: &'static str, pod: PodKey },
    #[error(
        "could not {what} pod {pod}: refused ({source}); check the RBAC of the lifecycle-controller and admission policies"
    )]
    Refused { what: &'static str, pod: PodKey, source: Box<kube::Error> },
    #[error("could not {what} pod {pod}: {source}; tried again with back-off")]
    Api { what: &'static str, pod: PodKey, source: Box<kube::Error> },
    #[error(
        "could not {what} pod {pod}: no answer from the API server within {after:?}; tried again with back-off"
    )]
    TimedOut { what: &'static str, pod: PodKey, after: Duration },
}

impl Error {
    pub(crate) fn api(what: &'static str, pod: PodKey, source: kube::Error) -> Self {
        let code = match &source {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        match code {
            409 => Error::Conflict { what, pod },
            404 => Error::Gone { what, pod },
            400 | 403 | 422 => Error::Refused { what, pod, source: Box::new(source) },
            _ => Error::Api { what, pod, source: Box::new(source) },
        }
    }

    /// The value of the metric's label.
    pub(crate) const fn category(&self) -> &'static str {
        match self {
            Error::Conflict { .. } => "conflict",
            Error::Gone { .. } => "gone",
            Error::Refused { .. } => "refused",
            Error::Api { .. } => "api",
            Error::TimedOut { .. } => "timeout",
        }
    }
}
