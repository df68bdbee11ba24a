//! The messages of the HTTP protocol.

mod answer;
mod answer_fields;
mod failure;
mod request;

pub use answer::{PollAnswer, PostAnswer};
pub use failure::WebhookFailure;
pub(crate) use request::{WebhookRequest, WebhookResource, trace_id};
