//! The judgement of the mutating webhook.

use std::time::{SystemTime, UNIX_EPOCH};

use podward_core::{Pod, ReviewPolicy, UnixNanos, Writer, on_create, on_update, review_raw};
use podward_runtime::admission::{AdmissionRequest, AdmissionResponse, Operation, Route, Webhook};

const INJECT: &str = "/inject";

static ROUTES: [Route; 2] = [
    Route {
        path: "/mutate",
        resources: &[("pods", ""), ("pods", "status")],
        operations: &[Operation::Create, Operation::Update],
    },
    Route { path: INJECT, resources: &[("pods", "")], operations: &[Operation::Create] },
];

/// Advances pods.
#[derive(Debug)]
pub struct Mutating {
    policy: ReviewPolicy,
}

impl Mutating {
    /// Judges by `policy`.
    #[must_use]
    pub fn new(policy: ReviewPolicy) -> Self {
        Self { policy }
    }
}

impl Webhook for Mutating {
    type Object = Pod;

    fn routes(&self) -> &'static [Route] {
        &ROUTES
    }

    fn decide(&self, route: &'static Route, request: &AdmissionRequest<'_, Pod>) -> AdmissionResponse {
        let Some(new) = &request.object else {
            return AdmissionResponse::bad_request(format!(
                "a review of {} without an object",
                request.operation
            ));
        };
        let old = request.old_object.as_ref();
        let writer = Writer { username: &request.user_info.username, groups: &request.user_info.groups };
        // Writes to pods/status are judged too: the API server keeps the labels that come with them.
        let review = review_raw(old, new, &writer, &self.policy);
        if !review.denials.is_empty() {
            return AdmissionResponse::forbid(review.denials.join("; ")).warn(review.warnings);
        }
        let patch = match request.operation {
            Operation::Create => on_create(new, route.path == INJECT, &[], now()),
            _ => on_update(old, new, now()),
        };
        AdmissionResponse::allow_with(patch).warn(review.warnings)
    }
}

/// The time that goes into labels. A clock before 1970 reads as 1970: readers only look whether a label is there.
fn now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
