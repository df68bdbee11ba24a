//! Pods of a workload that are deleted together, because its controller must delete all of them at once.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use podward_core::UnixNanos;
use podward_core::deletion::JointDeletion;
use podward_core::deletion::request::{DeletionRequest, JointState, replace};
use podward_kube_util::{ApiError, CachedPod, EventDraft, PodKey, now, pod_call};
use podward_runtime::retry::spread;

use crate::deletions::Deletions;
use crate::owners::read_counts;
use crate::recording::patch;
use crate::step::{BUDGET_RECHECK_DELAY, DeletionStep};

/// The time in which the workload's controller deletes the pods itself. The Job controller looks again 1 s after a pod
/// has changed.
const CONTROLLER_TIME: Duration = Duration::from_secs(10);
/// The time from the decision until the pods may be deleted: by then it is stored on all of them, and all replicas of the
/// webhook have seen it. Their clocks may differ a little.
const LEAD: Duration = Duration::from_secs(1);

impl Deletions {
    /// Returns what to do about `pod`, which may be deleted, until the pods that are deleted together with it are. `None`
    /// if it is to be deleted now.
    ///
    /// The last of the pods to drain lets all of them go. Then their controller deletes them, or Podward after
    /// [`CONTROLLER_TIME`].
    ///
    /// # Errors
    /// Fails if a request to the API server fails.
    pub(crate) async fn wait_for_others(
        &self,
        pod: &CachedPod,
        request: &DeletionRequest,
        owner: &OwnerReference,
        state: JointState,
    ) -> Result<Option<DeletionStep>, ApiError> {
        let now = now();
        if let JointState::MayGoSince(since) = state {
            let end = since.saturating_add(nanos(CONTROLLER_TIME));
            let left = UnixNanos(end).since(now);
            let left = (!left.is_zero()).then_some(left);
            return Ok(left.map(|left| DeletionStep { wake: Some(left), ..DeletionStep::default() }));
        }
        let counts = read_counts(&self.client, pod, owner).await?;
        let others = match counts.workload.joint_deletion(&counts.members, pod.uid()) {
            JointDeletion::Now(others) => others,
            JointDeletion::With(names) => {
                let note = format!(
                    "{} {} ends, and its controller must delete all its pods at once: waits until {} may be deleted, too",
                    owner.kind,
                    owner.name,
                    names.join(", ")
                );
                return Ok(Some(DeletionStep {
                    event: Some(EventDraft { reason: "DeletionWaits", note }),
                    wake: Some(spread(BUDGET_RECHECK_DELAY, 0.25)),
                    ..DeletionStep::default()
                }));
            }
        };
        let goes = JointState::MayGoSince(now.0.saturating_add(nanos(LEAD)));
        try_join_all(others.iter().map(|name| self.let_go(pod.namespace(), name, goes))).await?;
        let request = DeletionRequest { joint: Some(goes), ..request.clone() };
        Ok(Some(DeletionStep {
            wake: Some(LEAD + CONTROLLER_TIME),
            ..DeletionStep::change(replace(&request))
        }))
    }

    /// Stores that the pod `name`, which waits for others, may be deleted.
    async fn let_go(&self, namespace: &str, name: &str, state: JointState) -> Result<(), ApiError> {
        let key = PodKey { namespace: namespace.to_owned(), name: name.to_owned() };
        let api: Api<CachedPod> = Api::namespaced(self.client.clone(), namespace);
        let Some(pod) = pod_call("look up", &key, api.get_opt(name)).await? else { return Ok(()) };
        match pod.deletion_request().filter(|request| request.joint == Some(JointState::Waits)) {
            Some(request) => {
                let request = DeletionRequest { joint: Some(state), ..request };
                patch::write(&self.client, &pod, &replace(&request)).await.map(drop)
            }
            None => Ok(()),
        }
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
