//! The judgement of the validating webhook.

use podward_core::{Pod, ReviewPolicy, Writer, review};
use podward_runtime::admission::{AdmissionRequest, AdmissionResponse, Operation, Route, Webhook};

static ROUTES: [Route; 1] = [Route {
    path: "/validate",
    resources: &[("pods", "")],
    operations: &[Operation::Create, Operation::Update],
}];

/// Judges pods.
#[derive(Debug)]
pub struct Validating {
    policy: ReviewPolicy,
}

impl Validating {
    /// Judges by `policy`.
    #[must_use]
    pub fn new(policy: ReviewPolicy) -> Self {
        Self { policy }
    }
}

impl Webhook for Validating {
    type Object = Pod;

    fn routes(&self) -> &'static [Route] {
        &ROUTES
    }

    fn decide(&self, _: &'static Route, request: &AdmissionRequest<'_, Pod>) -> AdmissionResponse {
        let Some(new) = &request.object else {
            return AdmissionResponse::bad_request(format!(
                "a review of {} without an object",
                request.operation
            ));
        };
        let writer = Writer { username: &request.user_info.username, groups: &request.user_info.groups };
        let found = review(request.old_object.as_ref(), new, &writer, &self.policy);
        let response = match found.denials.is_empty() {
            true => AdmissionResponse::allow(),
            false => AdmissionResponse::forbid(found.denials.join("; ")),
        };
        response.warn(found.warnings)
    }
}
