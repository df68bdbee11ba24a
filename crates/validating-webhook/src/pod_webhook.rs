//! The webhook for pods.

use podward_core::{ReviewPolicy, Writer, review};
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, TracedPod, Webhook,
    WebhookRoute,
};

use crate::hold::DeletionHold;
use crate::reviewed_object::ReviewedObject;
use crate::writer_rights::WriterRights;

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
    rights: Option<WriterRights>,
}

impl PodWebhook {
    /// Returns a webhook that reviews writes with `policy` and allows every delete and eviction.
    #[must_use]
    pub fn new(policy: ReviewPolicy) -> Self {
        Self { policy, hold: None, rights: None }
    }

    /// Holds deletes and evictions with `hold`.
    #[must_use]
    pub fn with_hold(self, hold: DeletionHold) -> Self {
        Self { hold: Some(hold), ..self }
    }

    /// Checks the rights of writers with `rights`. Without it, writes need no right but that to update pods.
    #[must_use]
    pub fn with_rights(self, rights: WriterRights) -> Self {
        Self { rights: Some(rights), ..self }
    }

    fn validate<'a>(&'a self, request: &'a AdmissionRequest<'a, ReviewedObject>) -> AdmissionDecision<'a> {
        let Some(new) = &request.object else {
            return AdmissionResponse::bad_request(format!(
                "the review of {} has no object",
                request.operation
            ))
            .into();
        };
        let old = request.old_object.as_ref().map(|old| &old.pod);
        let writer = Writer { username: &request.user_info.username, groups: &request.user_info.groups };
        let found = review(old, &new.pod, &writer, &self.policy);
        let response = match found.denials.is_empty() {
            true => AdmissionResponse::allow(),
            false => AdmissionResponse::forbid(found.denials.join("; ")),
        };
        let response = response.warn(found.warnings);
        let Some(rights) = self.rights.as_ref().filter(|_| response.allowed) else {
            return response.into();
        };
        let Some(check) = rights.check(request, &new.pod, &self.policy) else {
            rights.report(request, &new.pod, &self.policy);
            return response.into();
        };
        AdmissionDecision::defer(move |deadline| async move {
            let response = check.apply_to(response, deadline).await;
            if response.allowed {
                rights.report(request, &new.pod, &self.policy);
            }
            response
        })
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
            _ => self.validate(request),
        }
    }

    fn traced<'a>(&self, request: &'a AdmissionRequest<'_, ReviewedObject>) -> Option<TracedPod<'a>> {
        let (new, old) = (request.object.as_ref(), request.old_object.as_ref());
        // The review of an eviction contains only the name of the pod. The response names the operation that it has begun.
        request.sub_resource.is_empty().then_some(())?;
        Some(TracedPod {
            uid: &new.or(old)?.pod.metadata.uid,
            labels: new.and_then(|reviewed| reviewed.pod.metadata.labels.as_ref()),
            old_labels: old.and_then(|reviewed| reviewed.pod.metadata.labels.as_ref()),
        })
    }
}
