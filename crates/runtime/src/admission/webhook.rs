//! The interface of a webhook's decisions.

use serde::de::DeserializeOwned;

use super::decision::AdmissionDecision;
use super::decode::{AdmissionOperation, AdmissionRequest};
use super::traced_pod::TracedPod;

/// The decisions of a webhook.
pub trait Webhook: Send + Sync + 'static {
    /// The fields of the object that the webhook reads.
    type Object: DeserializeOwned + Send + Sync;

    /// Returns the paths that the webhook serves.
    fn routes(&self) -> &'static [WebhookRoute];

    /// Decides about one write. `route` is the one of [`routes`](Self::routes) to which the request was sent, and the
    /// request matches it.
    ///
    /// A decision that needs only the request and memory is made here, without waiting. Any other decision is
    /// [deferred](AdmissionDecision::defer).
    fn decide<'a>(
        &'a self,
        route: &'static WebhookRoute,
        request: &'a AdmissionRequest<'a, Self::Object>,
    ) -> AdmissionDecision<'a>;

    /// Returns the pod of a request, for the traces of its operations; `None` if the request has none. Called only if
    /// traces are sent. An operation that the decision changes by a write of its own is in the
    /// [response](super::AdmissionResponse::changed_operation).
    fn traced<'a>(&self, _request: &'a AdmissionRequest<'_, Self::Object>) -> Option<TracedPod<'a>> {
        None
    }
}

/// A path of a webhook, and the requests that it accepts. The rules of the webhook configuration must match it.
#[derive(Debug)]
pub struct WebhookRoute {
    /// For example `/mutate`.
    pub path: &'static str,
    /// API group and version of the resources: `("", "v1")` for pods.
    pub api: (&'static str, &'static str),
    /// Resource and subresource, as in `("pods", "status")`.
    pub resources: &'static [(&'static str, &'static str)],
    /// Operations.
    pub operations: &'static [AdmissionOperation],
}
