//! Admission webhooks, admission.k8s.io/v1: reading reviews, answering them, and the HTTP service around both.
//!
//! [`AdmissionService`] is the whole of a webhook but its judgement, which is a [`Webhook`]; a process may have several, for different kinds of objects. It promises that every request gets an
//! answer and that no input makes it panic:
//!
//! - what can't be tied to a review (wrong path, method or content type, too large, not JSON, another API version) gets an HTTP
//!   status and a line of text; to the API server that is a failed call, so the hook's `failurePolicy` decides;
//! - a review that has a uid but can't be judged (wrong resource, an object that doesn't parse) is answered as denied, with the
//!   reason in its status.
//!
//! Most decisions are made on the spot. One that needs something from elsewhere is made in its own time ([`Decision::later`]), of
//! which there is a bound: on how many wait at once, and on how long, well below what the API server allows the webhook.
//!
//! Reviews are read straight from the one buffer of the body into the few fields that are needed, with no tree of values between:
//! two pods of 10 kB each, most of it managed fields, are skipped over rather than built.

mod body;
mod decision;
mod decode;
mod judge;
mod metrics;
mod response;
mod service;
mod traced;

pub use decision::{Decision, Later};
pub use decode::{AdmissionRequest, DeleteOptions, Operation, Resource, UserInfo};
pub use judge::Webhooks;
pub use metrics::AdmissionMetrics;
pub use response::AdmissionResponse;
pub use service::{AdmissionService, Limits, Route, Webhook};
pub use traced::TracedPod;
