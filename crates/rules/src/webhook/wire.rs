//! The messages of the HTTP protocol.

mod answer;
mod answer_fields;
mod failure;
mod problem;
mod request;

pub use answer::{PollAnswer, PostAnswer};
pub(crate) use failure::{HiddenReason, WebhookFailure};
pub use problem::AnswerProblem;
pub(crate) use request::{AddedPod, MAX_REQUEST, RequestBody, resource_json, trace_id};
