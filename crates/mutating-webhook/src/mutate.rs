//! The admission of pods.

use std::sync::Arc;

use podward_core::deletion::{names_requester, with_label_author};
use podward_core::history::with_history;
use podward_core::hooks::Hook;
use podward_core::{
    Pod, ReviewPolicy, Writer, drops_deletion_request, on_create, on_update, review_raw,
    without_managed_fields,
};
use podward_kube_util::now;
use podward_runtime::admission::{
    AdmissionDecision, AdmissionOperation, AdmissionRequest, AdmissionResponse, TracedPod, Webhook,
    WebhookRoute,
};

use crate::consumer_hooks::ConsumerHooks;

const INJECT: &str = "/inject";

static ROUTES: [WebhookRoute; 2] = [
    WebhookRoute {
        path: "/mutate",
        api: ("", "v1"),
        resources: &[("pods", ""), ("pods", "status")],
        operations: &[AdmissionOperation::Create, AdmissionOperation::Update],
    },
    WebhookRoute {
        path: INJECT,
        api: ("", "v1"),
        resources: &[("pods", "")],
        operations: &[AdmissionOperation::Create],
    },
];

/// The webhook that advances pods.
#[derive(Debug)]
pub struct MutatingWebhook {
    policy: ReviewPolicy,
    consumers: ConsumerHooks,
    drops_managed_fields: bool,
}

impl MutatingWebhook {
    /// Returns a webhook that reviews writes with `policy`. `consumers` are the hooks that new pods may get as
    /// consumers.
    #[must_use]
    pub fn new(policy: ReviewPolicy, consumers: ConsumerHooks) -> Self {
        Self { policy, consumers, drops_managed_fields: false }
    }

    /// Removes the managed fields of new pods if `drops` is true, see [`without_managed_fields`].
    #[must_use]
    pub fn drop_managed_fields(self, drops: bool) -> Self {
        Self { drops_managed_fields: drops, ..self }
    }

    fn admit(&self, route: &WebhookRoute, request: &AdmissionRequest<'_, Pod>) -> AdmissionResponse {
        let Some(new) = &request.object else {
            return AdmissionResponse::bad_request(format!(
                "the review of {} has no object",
                request.operation
            ));
        };
        let old = request.old_object.as_ref();
        let writer = Writer { username: &request.user_info.username, groups: &request.user_info.groups };
        // Writes to pods/status are reviewed too, because the API server stores the labels in them.
        let review = review_raw(old, new, &writer, &self.policy);
        if !review.denials.is_empty() {
            return AdmissionResponse::forbid(review.denials.join("; ")).warn(review.warnings);
        }
        let mut warnings = review.warnings;
        let now = now();
        let patch = match request.operation {
            AdmissionOperation::Create => {
                warnings.extend(self.consumers.eviction_warning(new, &request.namespace));
                let inject = route.path == INJECT;
                // `metadata.namespace` of a new pod may be unset.
                let consumers = self.consumers.of(new, &request.namespace, inject);
                let names: Vec<&str> = consumers.iter().map(|hook: &Arc<Hook>| hook.name.as_str()).collect();
                let mut patch = on_create(new, inject, &names, now);
                if self.drops_managed_fields {
                    patch = without_managed_fields(patch, new, inject);
                }
                with_label_author(patch, old, new, inject, &writer)
            }
            // Podward sets the label together with a request that names its user. Other trusted writers may, too.
            _ if self.policy.trusts(&writer) && names_requester(old, new) => on_update(old, new, now),
            _ => with_label_author(on_update(old, new, now), old, new, false, &writer),
        };
        if old.is_some_and(|old| drops_deletion_request(old, new)) {
            warnings.push(
                "the pod was to be deleted before it opted in; the deletion request is removed, because nobody has checked \
                 who made it; to delete the pod, delete it again"
                    .to_owned(),
            );
        }
        let patch = with_history(patch, old, new, writer.username, now);
        AdmissionResponse::allow_with(patch).warn(warnings)
    }
}

impl Webhook for MutatingWebhook {
    type Object = Pod;

    fn routes(&self) -> &'static [WebhookRoute] {
        &ROUTES
    }

    fn decide<'a>(
        &'a self,
        route: &'static WebhookRoute,
        request: &'a AdmissionRequest<'a, Pod>,
    ) -> AdmissionDecision<'a> {
        self.admit(route, request).into()
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
