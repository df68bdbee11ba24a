//! Admission webhooks (admission.k8s.io/v1): parsing reviews, answering them, and the HTTP service around both.
//!
//! [`AdmissionService`] is a webhook without its decisions, which a [`Webhook`] makes. A process may have several
//! webhooks, for different kinds of objects. Every request gets an answer, and no input causes a panic:
//!
//! - A request that is not a review (wrong path, method or content type, too large, not JSON, another API version) gets
//!   an HTTP status and a line of text. For the API server that is a failed call, so the `failurePolicy` of the webhook
//!   configuration decides.
//! - A review that has a uid but can't be decided (wrong resource, an object that can't be parsed) is denied, with the
//!   reason in its status.
//!
//! Most decisions are made without waiting. A decision that needs to wait is [deferred](AdmissionDecision::defer). The
//! number of deferred decisions is limited, and so is their time, well below the API server's timeout.
//!
//! A review is parsed straight from the buffer of the body into the few fields that are needed. Most of its two pods of
//! 10 kB each is managed fields, which are skipped.

mod body;
mod changed_operation;
mod decision;
mod decode;
mod limits;
mod metrics;
mod response;
mod service;
mod spans;
mod traced_pod;
mod webhook;
mod webhooks;

pub use changed_operation::ChangedOperation;
pub use decision::{AdmissionDecision, DeferredDecision};
pub use decode::{
    AdmissionOperation, AdmissionRequest, AdmissionResource, AdmissionUser, DeleteOptions, Preconditions,
};
pub use limits::AdmissionLimits;
pub use metrics::AdmissionMetrics;
pub use response::AdmissionResponse;
pub use service::AdmissionService;
pub use traced_pod::TracedPod;
pub use webhook::{Webhook, WebhookRoute};
pub use webhooks::Webhooks;
