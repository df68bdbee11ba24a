//! The reviews of deletes and evictions.

use std::fmt;
use std::sync::Arc;

use kube::Client;
use podward_core::deletion::request::DeletionKind;
use podward_core::is_object_name;
use podward_runtime::WebhookSetup;
use podward_runtime::admission::{AdmissionDecision, AdmissionRequest, AdmissionResponse};

use super::incoming_deletion::IncomingDeletion;
use super::judge::{DeletionJudge, HoldOptions};
use super::request_recorder::RequestRecorder;
use crate::pod_access::PodAccess;
use crate::pod_events::PodEvents;
use crate::reviewed_object::ReviewedObject;

/// Holds deletes and evictions. Clones share the state.
#[derive(Clone)]
pub struct DeletionHold {
    judge: Arc<DeletionJudge>,
}

impl fmt::Debug for DeletionHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeletionHold").field("judge", &self.judge).finish()
    }
}

impl DeletionHold {
    /// Watches the nodes and namespaces of the cluster of `client`. The process is ready when both lists are complete.
    /// `recorder` records deletion requests.
    #[must_use]
    pub fn new(
        options: HoldOptions,
        client: Client,
        recorder: impl RequestRecorder,
        setup: &mut WebhookSetup,
    ) -> Self {
        Self { judge: Arc::new(DeletionJudge::new(options, client, Box::new(recorder), setup)) }
    }

    /// Returns the sender of events.
    pub(crate) fn events(&self) -> &PodEvents {
        self.judge.events()
    }

    /// Returns what asks about the rights of users.
    pub(crate) fn access(&self) -> &PodAccess {
        self.judge.access()
    }

    /// Reviews a DELETE of a pod. The review contains the stored pod.
    pub(crate) fn delete<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a, ReviewedObject>,
    ) -> AdmissionDecision<'a> {
        let Some(ReviewedObject { pod, .. }) = &request.old_object else {
            return AdmissionResponse::bad_request("the review of DELETE has no old object".to_owned())
                .into();
        };
        // The API server always sends it. Without it, a request could be recorded on another pod of the same name.
        if pod.metadata.uid.is_empty() {
            return AdmissionResponse::bad_request("the old object of the review has no UID".to_owned())
                .into();
        }
        let deletion =
            IncomingDeletion::new(DeletionKind::Delete, request, request.dry_run, &request.options);
        self.judge.judge(pod, deletion)
    }

    /// Reviews an eviction. The review does not contain the pod, so it must be read from the API server.
    pub(crate) fn evict<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a, ReviewedObject>,
    ) -> AdmissionDecision<'a> {
        let Some(ReviewedObject { delete_options: options, .. }) = &request.object else {
            return AdmissionResponse::bad_request("the review of an eviction has no object".to_owned())
                .into();
        };
        // `request.dry_run` comes from the query. The body may request a dry run too.
        let dry_run = request.dry_run || options.dry_run.as_ref().is_some_and(|runs| !runs.is_empty());
        if dry_run || !is_object_name(&request.name) || !is_object_name(&request.namespace) {
            // A dry run has no effect, and the API server rejects an invalid name.
            return AdmissionResponse::allow().into();
        }
        let deletion = IncomingDeletion::new(DeletionKind::Evict, request, dry_run, options);
        AdmissionDecision::defer(move |deadline| self.judge.find_and_judge(&request.name, deletion, deadline))
    }
}
