//! Pods of a workload that wait for each other, because its controller must delete the last of them at once.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use podward_core::UnixNanos;
use podward_core::deletion::JointDeletion;
use podward_core::deletion::request::{DeletionRequest, JointState, replace};
use podward_kube_util::{ApiError, CachedPod, EventDraft, PodKey, now, pod_call};
use podward_runtime::retry::{CONFLICT, Retryable, spread};

use crate::deletions::Deletions;
use crate::joint_count::JointCount;
use crate::owners::{ListedPart, read_counts};
use crate::recording::patch;
use crate::step::{BUDGET_RECHECK_DELAY, DeletionStep};

/// The time in which the workload's controller deletes the pods itself. The Job controller looks again 1 s after a pod has
/// changed, and after failed deletes within a minute (`MaxJobApiBackOff`).
const CONTROLLER_TIME: Duration = Duration::from_secs(65);
/// The time from the decision until several pods may be deleted: by then it is stored on all of them, and all replicas of
/// the webhook have seen it. Their clocks may differ a little.
const LEAD: Duration = Duration::from_secs(1);
/// How much the clocks of the webhooks may differ from that of the leader. A pod that goes alone does not wait for it.
const CLOCK_SKEW: Duration = Duration::from_secs(2);
/// Added to [`LEAD`] for each pod: they are written first, [`WRITES_AT_ONCE`] at a time.
const LEAD_PER_POD: Duration = Duration::from_millis(20);
const WRITES_AT_ONCE: usize = 32;
/// The number of pods that an event names.
const NAMED: usize = 10;

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
        if let JointState::MayGoSince(since) = state {
            let now = now();
            if since <= now.0 && self.joint_waits.takes_turn(pod.uid()) {
                // All of them may be deleted now. Their controller looks again when one of them changes.
                let joint = Some(JointState::MayGoSince(since.saturating_add(1)));
                let step = DeletionStep::change(replace(&DeletionRequest { joint, ..request.clone() }));
                return Ok(Some(DeletionStep { wake: Some(CONTROLLER_TIME), ..step }));
            }
            let next = if since > now.0 { since } else { since.saturating_add(nanos(CONTROLLER_TIME)) };
            let left = UnixNanos(next).since(now);
            let left = (!left.is_zero()).then_some(left);
            return Ok(left.map(|left| DeletionStep { wake: Some(left), ..DeletionStep::default() }));
        }
        let read = async || {
            let counts = read_counts(&self.client, pod, owner, ListedPart::MetadataAndRestarts).await?;
            Ok(JointCount { counts, is_decided: false })
        };
        let decide = async |shared: &mut JointCount| {
            let workload = &shared.counts.workload;
            let found = workload.joint_deletion(&shared.counts.members, pod.uid());
            if matches!(found, JointDeletion::After(_)) {
                self.waiting.wait_for_owner(&pod.key(), owner, workload);
            }
            let was_decided = shared.is_decided;
            shared.is_decided |= matches!(&found, JointDeletion::Now(others) if !others.is_empty());
            Ok((!was_decided).then_some(found))
        };
        let Some(found) = self.joint.decide(&owner.uid, read, decide).await? else {
            // The other pod writes this one.
            let wake = Some(spread(BUDGET_RECHECK_DELAY, 0.25));
            return Ok(Some(DeletionStep { wake, ..DeletionStep::default() }));
        };
        let others = match found {
            JointDeletion::Now(others) => others,
            JointDeletion::After(mut names) => {
                let more = names.len().saturating_sub(NAMED);
                names.truncate(NAMED);
                if more > 0 {
                    names.push(format!("{more} more"));
                }
                let note = format!(
                    "{} {} ends; if it fails by restarts, those of present pods count: waits until {} may be deleted, too, \
                     or have ended",
                    owner.kind,
                    owner.name,
                    names.join(", ")
                );
                let is_told = self.joint_waits.is_told(pod.uid(), Instant::now());
                return Ok(Some(DeletionStep {
                    event: (!is_told).then_some(EventDraft { reason: "DeletionWaits", note }),
                    wake: Some(spread(BUDGET_RECHECK_DELAY, 0.25)),
                    ..DeletionStep::default()
                }));
            }
        };
        let (lead, since) = match u32::try_from(others.len()).unwrap_or(u32::MAX) {
            0 => (CONTROLLER_TIME, now().0.saturating_sub(nanos(CLOCK_SKEW))),
            others => {
                self.joint_waits.takes_turn_later(pod.uid());
                let lead = LEAD + LEAD_PER_POD * others;
                (lead, now().0.saturating_add(nanos(lead)))
            }
        };
        let goes = JointState::MayGoSince(since);
        let writes = stream::iter(others).map(|name| async move {
            let write = || self.let_go(pod.namespace(), &name, goes);
            write.retry(CONFLICT).when(ApiError::is_conflict).await
        });
        // A write that fails does not stop the others: the pods are to go at the same time.
        let written: Vec<Result<(), ApiError>> = writes.buffer_unordered(WRITES_AT_ONCE).collect().await;
        written.into_iter().collect::<Result<(), ApiError>>()?;
        let request = DeletionRequest { joint: Some(goes), ..request.clone() };
        Ok(Some(DeletionStep { wake: Some(lead), ..DeletionStep::change(replace(&request)) }))
    }

    /// Ends the wait of `pod`, which is being deleted or is to stay. Wakes the pods that wait for it, once.
    pub(crate) fn forget_wait(&self, pod: &CachedPod) {
        let was_waiting = self.waiting.forget(&pod.key());
        self.joint_waits.forget(pod.uid());
        let is_joint = || pod.deletion_request().is_some_and(|request| request.joint.is_some());
        if let Some(owner) = pod.controller().filter(|_| was_waiting && is_joint()) {
            self.waiting.wake_owner(&owner.uid);
        }
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
