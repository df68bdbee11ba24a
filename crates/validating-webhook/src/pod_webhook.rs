//! The webhook for pods.

use podward_core::{ReviewPolicy, Writer, review};
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, TracedPod, Webhook,
    WebhookRoute,
};

use crate::hold::DeletionHold;
use crate::reviewed_object::ReviewedObject;

const DELETE: &str = "/delete";
const EVICT: &str = "/evict";

static ROUTES: [WebhookRoute; 3] = [
    WebhookRoute {
        path: "/validate",
        api: ("", "v1"),
        resources: &[("pods", "")],
        operations: &[AdmissionOperation::Create, AdmissionOperation::Update],
    },
    WebhookRoute {
        path: DELETE,
        api: ("", "v1"),
        resources: &[("pods", "")],
        operations: &[AdmissionOperation::Delete],
    },
    WebhookRoute {
        path: EVICT,
        api: ("", "v1"),
        resources: &[("pods", "eviction")],
        operations: &[AdmissionOperation::Create],
    },
];

/// Reviews writes to pods, and holds deletes and evictions.
#[derive(Debug)]
pub struct PodWebhook {
    policy: ReviewPolicy,
    hold: Option<DeletionHold>,
}

impl PodWebhook {
    /// Returns a webhook that reviews writes with `policy` and allows every delete and eviction.
    #[must_use]
    pub fn new(policy: ReviewPolicy) -> Self {
        Self { policy, hold: None }
    }

    /// Holds deletes and evictions with `hold`.
    #[must_use]
    pub fn with_hold(self, hold: DeletionHold) -> Self {
        Self { hold: Some(hold), ..self }
    }

    fn validate(&self, request: &AdmissionRequest<'_, ReviewedObject>) -> AdmissionResponse {
        let Some(new) = &request.object else {
            return AdmissionResponse::bad_request(format!(
                "the review of {} has no object",
                request.operation
            ));
        };
        let old = request.old_object.as_ref().map(|old| &old.pod);
        let writer = Writer { username: &request.user_info.username, groups: &request.user_info.groups };
        let found = review(old, &new.pod, &writer, &self.policy);
        let response = match found.denials.is_empty() {
            true => AdmissionResponse::allow(),
            false => AdmissionResponse::forbid(found.denials.join("; ")),
        };
        response.warn(found.warnings)
    }
}

impl Webhook for PodWebhook {
    type Object = ReviewedObject;

    fn routes(&self) -> &'static [WebhookRoute] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        route: &'static WebhookRoute,
        request: &'a AdmissionRequest<'a, ReviewedObject>,
    ) -> AdmissionDecision<'a> {
        match (route.path, &self.hold) {
            (DELETE, Some(hold)) => hold.delete(request),
            (EVICT, Some(hold)) => hold.evict(request),
            (DELETE | EVICT, None) => AdmissionResponse::allow().into(),
            _ => self.validate(request).into(),
        }
    }

    fn traced<'a>(&self, request: &'a AdmissionRequest<'_, ReviewedObject>) -> Option<TracedPod<'a>> {
        let (new, old) = (request.object.as_ref(), request.old_object.as_ref());
        // The review of an eviction contains only the name of the pod.
        request.sub_resource.is_empty().then_some(())?;
        Some(TracedPod {
            uid: &new.or(old)?.pod.metadata.uid,
            labels: new.and_then(|reviewed| reviewed.pod.metadata.labels.as_ref()),
            old_labels: old.and_then(|reviewed| reviewed.pod.metadata.labels.as_ref()),
        })
    }
}
