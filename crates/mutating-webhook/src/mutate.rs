//! The judgement of the mutating webhook.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use podward_core::hooks::Hook;
use podward_core::{Pod, ReviewPolicy, UnixNanos, Writer, on_create, on_update, review_raw};
use podward_runtime::admission::{
    AdmissionRequest, AdmissionResponse, Decision, Operation, Route, TracedPod, Webhook,
};

use crate::consumers::Consumers;

const INJECT: &str = "/inject";

static ROUTES: [Route; 2] = [
    Route {
        path: "/mutate",
        api: ("", "v1"),
        resources: &[("pods", ""), ("pods", "status")],
        operations: &[Operation::Create, Operation::Update],
    },
    Route { path: INJECT, api: ("", "v1"), resources: &[("pods", "")], operations: &[Operation::Create] },
];

/// Advances pods.
#[derive(Debug)]
pub struct Mutating {
    policy: ReviewPolicy,
    consumers: Consumers,
}

impl Mutating {
    /// Judges by `policy`, and names the consumers of new pods by `consumers`.
    #[must_use]
    pub fn new(policy: ReviewPolicy, consumers: Consumers) -> Self {
        Self { policy, consumers }
    }

    fn judge(&self, route: &Route, request: &AdmissionRequest<'_, Pod>) -> AdmissionResponse {
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
            Operation::Create => {
                let inject = route.path == INJECT;
                // A new pod's own namespace may not be written in it yet.
                let consumers = self.consumers.of(new, &request.namespace, inject);
                let names: Vec<&str> = consumers.iter().map(|hook: &Arc<Hook>| hook.name.as_str()).collect();
                on_create(new, inject, &names, now())
            }
            _ => on_update(old, new, now()),
        };
        AdmissionResponse::allow_with(patch).warn(review.warnings)
    }
}

impl Webhook for Mutating {
    type Object = Pod;

    fn routes(&self) -> &'static [Route] {
        &ROUTES
    }

    fn decide<'a>(&'a self, route: &'static Route, request: &'a AdmissionRequest<'a, Pod>) -> Decision<'a> {
        self.judge(route, request).into()
    }

    fn traced<'a>(&self, request: &'a AdmissionRequest<'_, Pod>) -> Option<TracedPod<'a>> {
        let (new, old) = (request.object.as_ref(), request.old_object.as_ref());
        Some(TracedPod {
            uid: &new.or(old)?.metadata.uid,
            labels: new.and_then(|pod| pod.metadata.labels.as_ref()),
            old_labels: old.and_then(|pod| pod.metadata.labels.as_ref()),
        })
    }
}

/// The time that goes into labels. A clock before 1970 reads as 1970: readers only look whether a label is there.
fn now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
