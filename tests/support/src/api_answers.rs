//! Responses of an API server, for tests that replace it.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// A response: complete, or in pieces like the response to a watch.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Returns `value` with status 200.
#[must_use]
pub fn json_answer(value: &Value) -> Answer {
    Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

/// Returns an error response. The message is the reason.
#[must_use]
pub fn failure(status: StatusCode, reason: &str) -> Answer {
    let mut answer = json_answer(&json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": status.as_u16(),
        "reason": reason, "message": reason,
    }));
    *answer.status_mut() = status;
    answer
}
