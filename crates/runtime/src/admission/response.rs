//! Responses to reviews.

use std::collections::BTreeMap;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use k8s_openapi::ByteString;
use serde::Serialize;

use super::changed_operation::ChangedOperation;
use super::decode::{API_VERSION, KIND};

/// The API server passes on at least 256 characters of a warning, and 4096 of all warnings together.
const WARNING_CHARS: usize = 1024;
const WARNINGS_CHARS: usize = 4096;
/// The text of a denial is shown in status objects, events and terminals.
const MESSAGE_CHARS: usize = 4096;
/// The least that the header can say.
const RETRY_AFTER_SECONDS: &str = "1";

/// The response to one review.
#[derive(Clone, Debug, Default)]
pub struct AdmissionResponse {
    /// True if the write is allowed.
    pub allowed: bool,
    /// HTTP status that the caller of the API server gets if the write is denied.
    pub code: u16,
    /// The reason of a denial, one CamelCase word; see `metav1.StatusReason`.
    pub reason: &'static str,
    /// The reason of a denial for people.
    pub message: String,
    /// Lines that are shown to the caller, also of an allowed write. Long ones are cut.
    pub warnings: Vec<String>,
    /// Changes to the object. Only a mutating webhook may have them, and only if the write is allowed.
    pub patch: Option<json_patch::Patch>,
    /// True if the same denial was logged before. It is logged at `debug` then.
    pub is_repeated: bool,
    /// Entries of the audit log. The API server prefixes each key with the webhook's name.
    pub audit_annotations: BTreeMap<&'static str, String>,
    /// The operation that was begun or changed while the decision was made, by a write of its own. The review is a part of
    /// its trace, also if the review is denied.
    pub changed_operation: Option<ChangedOperation>,
}

impl AdmissionResponse {
    /// Allows the write without changes.
    #[must_use]
    pub fn allow() -> Self {
        Self { allowed: true, ..Self::default() }
    }

    /// Allows the write with the changes in `patch`, which may be empty.
    #[must_use]
    pub fn allow_with(patch: json_patch::Patch) -> Self {
        Self { patch: (!patch.0.is_empty()).then_some(patch), ..Self::allow() }
    }

    /// Denies the write with 403.
    #[must_use]
    pub fn forbid(message: String) -> Self {
        Self { code: 403, reason: "Forbidden", message, ..Self::default() }
    }

    /// Denies the write with 429, so that the caller tries again later. There is no `retryAfterSeconds`, because with
    /// it client libraries would retry by themselves and hide the reason from their callers.
    #[must_use]
    pub fn try_again(message: String) -> Self {
        Self { code: 429, reason: "TooManyRequests", message, ..Self::default() }
    }

    /// Denies the write with 404: the object that the caller means does not exist.
    #[must_use]
    pub fn not_found(message: String) -> Self {
        Self { code: 404, reason: "NotFound", message, ..Self::default() }
    }

    /// Denies the write with 409: the stored object is not the version that the caller means.
    #[must_use]
    pub fn conflict(message: String) -> Self {
        Self { code: 409, reason: "Conflict", message, ..Self::default() }
    }

    /// Denies the write with 400, because the review is invalid.
    #[must_use]
    pub fn bad_request(message: String) -> Self {
        Self { code: 400, reason: "BadRequest", message, ..Self::default() }
    }

    /// Adds warnings.
    #[must_use]
    pub fn warn(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Returns the AdmissionReview with the response to the review `uid`.
    pub(super) fn encode(&self, uid: &str) -> Response<Full<Bytes>> {
        let patch = self.patch.as_ref().filter(|_| self.allowed);
        let patch = patch.map(serde_json::to_vec).transpose();
        let body = patch.and_then(|patch| {
            let body = ReviewOut {
                api_version: API_VERSION,
                kind: KIND,
                response: ResponseBody {
                    uid,
                    allowed: self.allowed,
                    status: self.status(),
                    patch_type: patch.as_ref().map(|_| "JSONPatch"),
                    patch: patch.map(ByteString),
                    warnings: self.short_warnings(),
                    audit_annotations: &self.audit_annotations,
                },
            };
            let mut buffer = Vec::with_capacity(1024);
            serde_json::to_writer(&mut buffer, &body)?;
            Ok(buffer)
        });
        match body {
            Ok(body) => http(StatusCode::OK, "application/json", body),
            Err(error) => HttpRefusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the answer could not be written: {error}"),
            )
            .encode(),
        }
    }

    fn status(&self) -> Option<ReviewStatus<'_>> {
        (!self.allowed).then(|| ReviewStatus {
            status: "Failure",
            code: self.code,
            reason: self.reason,
            message: plain(&self.message, MESSAGE_CHARS),
        })
    }

    fn short_warnings(&self) -> Vec<String> {
        let mut left = WARNINGS_CHARS;
        let mut lines = Vec::with_capacity(self.warnings.len());
        for warning in &self.warnings {
            if left == 0 {
                break;
            }
            let line = plain(warning, WARNING_CHARS.min(left));
            left -= line.chars().count();
            lines.push(line);
        }
        lines
    }
}

/// Returns the first `max` characters of `text`, without control characters: those are not allowed in the header of a
/// warning.
fn plain(text: &str, max: usize) -> String {
    let mut characters = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = characters.by_ref().take(max).collect();
    if characters.next().is_some() && short.pop().is_some() {
        short.push('…');
    }
    short
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewOut<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ResponseBody<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBody<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<ReviewStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct ReviewStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'a str,
    message: String,
}

/// The answer to a request that is not a review: an HTTP status and a line of text.
#[derive(Debug)]
pub(super) struct HttpRefusal {
    status: StatusCode,
    message: String,
    retry: bool,
    unread: bool,
}

impl HttpRefusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry: false, unread: false }
    }

    /// The answer to a request whose body was not read, so that it is unknown whether it is a review.
    pub(super) fn unread(status: StatusCode, message: String) -> Self {
        Self { status, message, retry: false, unread: true }
    }

    /// 429 with `Retry-After`. The API server sends the review again after that time, within the webhook's timeout.
    pub(super) fn try_again(message: String) -> Self {
        Self { retry: true, ..Self::unread(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// Returns true if the body of the request was not read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn encode(&self) -> Response<Full<Bytes>> {
        let mut text = plain(&self.message, MESSAGE_CHARS);
        text.push('\n');
        let mut response = http(self.status, "text/plain; charset=utf-8", text.into_bytes());
        if self.retry {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        response
    }
}

fn http(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;

    async fn encoded(response: &AdmissionResponse) -> Value {
        let body = response.encode("u-1").into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn an_allowed_review_has_only_the_required_fields() {
        let review = encoded(&AdmissionResponse::allow_with(json_patch::Patch(Vec::new()))).await;
        let expected =
            json!({"apiVersion": API_VERSION, "kind": KIND, "response": {"uid": "u-1", "allowed": true}});
        assert_eq!(review, expected);
    }

    #[tokio::test]
    async fn a_patch_is_base64_of_json() {
        let patch = serde_json::from_value(json!([{"op": "remove", "path": "/a"}])).unwrap();
        let review = encoded(&AdmissionResponse::allow_with(patch)).await;
        assert_eq!(review["response"]["patchType"], "JSONPatch");
        assert_eq!(review["response"]["patch"], "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=");
    }

    #[tokio::test]
    async fn a_denial_carries_no_patch() {
        let patch = serde_json::from_value(json!([{"op": "remove", "path": "/a"}])).unwrap();
        let review = encoded(&AdmissionResponse {
            patch: Some(patch),
            ..AdmissionResponse::forbid("no\nway".to_owned())
        })
        .await;
        assert_eq!(review["response"]["patch"], Value::Null);
        let status = json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no way"});
        assert_eq!(review["response"]["status"], status);
    }

    #[tokio::test]
    async fn warnings_are_cut_each_and_together() {
        let long = "ä".repeat(2000);
        let review = encoded(&AdmissionResponse::allow().warn(vec![long; 9])).await;
        let warnings = review["response"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 4);
        assert!(warnings.iter().all(|w| w.as_str().unwrap().chars().count() == WARNING_CHARS));
        assert!(warnings[0].as_str().unwrap().ends_with('…'));
    }
}
