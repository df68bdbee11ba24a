//! The judgement of the validating webhook.

use podward_core::{ReviewPolicy, Writer, review};
use podward_runtime::admission::{
    AdmissionRequest, AdmissionResponse, Decision, Operation, Route, TracedPod, Webhook,
};

use crate::hold::Holding;
use crate::subject::Subject;

const DELETE: &str = "/delete";
const EVICT: &str = "/evict";

static ROUTES: [Route; 3] = [
    Route {
        path: "/validate",
        api: ("", "v1"),
        resources: &[("pods", "")],
        operations: &[Operation::Create, Operation::Update],
    },
    Route { path: DELETE, api: ("", "v1"), resources: &[("pods", "")], operations: &[Operation::Delete] },
    Route {
        path: EVICT,
        api: ("", "v1"),
        resources: &[("pods", "eviction")],
        operations: &[Operation::Create],
    },
];

/// Judges writes to pods, and holds their deletes and evictions.
#[derive(Debug)]
pub struct Validating {
    policy: ReviewPolicy,
    holding: Option<Holding>,
}

impl Validating {
    /// Judges by `policy`, and lets every delete and eviction through.
    #[must_use]
    pub fn new(policy: ReviewPolicy) -> Self {
        Self { policy, holding: None }
    }

    /// Holds deletes and evictions by `holding`.
    #[must_use]
    pub fn with_holding(self, holding: Holding) -> Self {
        Self { holding: Some(holding), ..self }
    }

    fn validate(&self, request: &AdmissionRequest<'_, Subject>) -> AdmissionResponse {
        let Some(new) = &request.object else {
            return AdmissionResponse::bad_request(format!(
                "a review of {} without an object",
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

impl Webhook for Validating {
    type Object = Subject;

    fn routes(&self) -> &'static [Route] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        route: &'static Route,
        request: &'a AdmissionRequest<'a, Subject>,
    ) -> Decision<'a> {
        match (route.path, &self.holding) {
            (DELETE, Some(holding)) => holding.delete(request),
            (EVICT, Some(holding)) => holding.evict(request),
            (DELETE | EVICT, None) => AdmissionResponse::allow().into(),
            _ => self.validate(request).into(),
        }
    }

    fn traced<'a>(&self, request: &'a AdmissionRequest<'_, Subject>) -> Option<TracedPod<'a>> {
        let (new, old) = (request.object.as_ref(), request.old_object.as_ref());
        // An eviction says nothing of its pod but the name.
        request.sub_resource.is_empty().then_some(())?;
        Some(TracedPod {
            uid: &new.or(old)?.pod.metadata.uid,
            labels: new.and_then(|subject| subject.pod.metadata.labels.as_ref()),
            old_labels: old.and_then(|subject| subject.pod.metadata.labels.as_ref()),
        })
    }
}
