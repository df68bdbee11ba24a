//! What an API server answers, as the tests' stand-ins for one do.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// An answer, whole or bit by bit as those to watches.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// `value`, with status 200.
#[must_use]
pub fn json_answer(value: &Value) -> Answer {
    Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

/// A refusal, whose text is its reason.
#[must_use]
pub fn failure(status: StatusCode, reason: &str) -> Answer {
    let mut answer = json_answer(&json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": status.as_u16(),
        "reason": reason, "message": reason,
    }));
    *answer.status_mut() = status;
    answer
}
