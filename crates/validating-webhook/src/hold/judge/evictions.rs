//! Evictions: only the name of their pod is known.

use std::time::Instant;

use podward_core::Pod;
use podward_core::deletion::hold::{EvictionTarget, REPEATED_WITHIN};
use podward_kube_util::now;
use podward_runtime::admission::{AdmissionDecision, AdmissionResponse};

use super::super::incoming_deletion::IncomingDeletion;
use super::super::metrics::HoldResult;
use super::DeletionJudge;

impl DeletionJudge {
    /// Reads the pod `name` and decides about its deletion.
    pub(in super::super) async fn find_and_judge(
        &self,
        name: &str,
        deletion: IncomingDeletion<'_>,
        deadline: Instant,
    ) -> AdmissionResponse {
        match self.cluster.pod(deletion.namespace, name, deadline).await {
            Ok(Some(pod)) => {
                if let Some(response) = self.other_target(&pod, deletion, deadline).await {
                    return response;
                }
                match self.judge(&pod, deletion) {
                    AdmissionDecision::Now(response) => response,
                    AdmissionDecision::Deferred(decision) => decision.make(deadline).await,
                }
            }
            Ok(None) => self.gone(deletion),
            Err(error) => {
                self.metrics.count_held(deletion.kind, HoldResult::Unseen);
                AdmissionResponse::try_again(format!(
                    "Podward could not read pod {}/{name} to decide whether it may be evicted: {error}; nothing was \
                     changed, try again",
                    deletion.namespace
                ))
            }
        }
    }

    /// Returns the response to an eviction that does not mean `pod`: by its preconditions, or because it repeats the
    /// eviction of an earlier pod with the same name. Returns `None` for an eviction of `pod`.
    async fn other_target(
        &self,
        pod: &Pod,
        deletion: IncomingDeletion<'_>,
        deadline: Instant,
    ) -> Option<AdmissionResponse> {
        let (namespace, name) = (deletion.namespace, &pod.metadata.name);
        match deletion.target(pod) {
            EvictionTarget::ThisPod => {}
            // The API server would take a place in the disruption budget before it compares the preconditions, and the
            // place would be lost for two minutes.
            EvictionTarget::Other if pod.view().is_controlled() => {
                self.metrics.count_held(deletion.kind, HoldResult::Replaced);
                let metadata = &pod.metadata;
                return Some(AdmissionResponse::conflict(format!(
                    "the eviction has a precondition that pod {namespace}/{name} does not meet: it has UID {} and resource \
                     version {}; nothing was changed",
                    metadata.uid, metadata.resource_version
                )));
            }
            EvictionTarget::Other => return Some(self.gone(deletion)),
            EvictionTarget::LaterVersion => {
                return Some(AdmissionResponse::conflict(format!(
                    "the eviction has a precondition on the resource version of pod {namespace}/{name}, and the pod has \
                     resource version {}; nothing was changed, read the pod and try again",
                    pod.metadata.resource_version
                )));
            }
        }
        let caller = deletion.caller_by_name(name)?;
        let uid = &pod.metadata.uid;
        let meant = self.held_evictions.lock().meant(&caller, uid, now()).map(ToOwned::to_owned)?;
        match self.cluster.is_on_cordoned_node(pod, deadline).await {
            Ok(true) => None,
            Ok(false) => {
                self.metrics.count_held(deletion.kind, HoldResult::Replaced);
                Some(AdmissionResponse::not_found(format!(
                    "pod {namespace}/{name} with UID {meant}, which was to be evicted, is gone; the pod with this name \
                     has UID {uid} and is not evicted; to evict it, set its UID in deleteOptions.preconditions, or try \
                     again in {} s",
                    REPEATED_WITHIN.as_secs()
                )))
            }
            Err(error) => {
                self.metrics.count_held(deletion.kind, HoldResult::Unseen);
                Some(AdmissionResponse::try_again(format!(
                    "Podward could not read the node of pod {namespace}/{name} to decide whether it may be evicted: \
                     {error}; nothing was changed, try again"
                )))
            }
        }
    }
}
