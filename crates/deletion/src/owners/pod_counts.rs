//! Reads from the API server how many pods an owner wants, and which pods it has.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client};
use podward_core::busy::{BusyClaim, HIGHEST_COST};
use podward_core::deletion::request::{DeletionRequest, JointState};
use podward_core::deletion::{DeletionProgress, Workload, WorkloadPod, WorkloadPodRequest};
use podward_core::keys::{
    BUSY_UNTIL, CONTROL_LABEL, CONTROL_VALUE, DELETE_OPERATION, DELETION_REQUEST, POD_DELETION_COST,
    SERVICE_AVAILABLE, Stage, TO_DELETE,
};
use podward_core::{Operations, UnixNanos};
use podward_kube_util::owners::{Owner, resource_of, selector, wants};
use podward_kube_util::{ApiError, CachedPod, now, pod_call};

use super::pod_list::{self, ACTIVE, ListedPart, PodList, PodMetadata};

/// The label with the revision of a pod of a StatefulSet.
const REVISION: &str = "controller-revision-hash";

/// How many pods an owner wants, and its active pods.
#[derive(Clone, Debug)]
pub(crate) struct OwnerCounts {
    pub(crate) workload: Workload,
    pub(crate) members: Vec<WorkloadPod>,
    /// The resource version of the list of the pods. `None` if they were not listed, because the workload ends.
    pub(crate) version: Option<u64>,
    /// True if a pod in service without a deletion request is not busy.
    pub(crate) has_idle: bool,
}

/// The meaning of a request of a workload's controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedRequest {
    ends_workload: bool,
    joint: Option<JointState>,
}

impl AdmittedRequest {
    /// Stores the meaning in `request`.
    pub(crate) fn apply(self, request: &mut DeletionRequest) {
        (request.ends_workload, request.joint) = (self.ends_workload, self.joint);
    }
}

impl OwnerCounts {
    /// Decides at `now` about a request of the workload's controller for the pod `uid`, instead of any other request on
    /// the pod. A request that is accepted counts from now on. Returns what it means.
    ///
    /// # Errors
    /// Fails with the reason for which the pod stays.
    pub(crate) fn admit(&mut self, uid: &str, now: UnixNanos) -> Result<AdmittedRequest, String> {
        let ends_workload = self.workload.ends_by_request(&self.members);
        let place = self.members.iter().position(|member| member.uid == uid);
        let before = place.and_then(|place| self.members[place].request.take());
        let may_go = self.workload.may_go(&self.members, uid, now.0);
        if let Some(place) = place {
            let progress = DeletionProgress::Requested;
            let request = WorkloadPodRequest {
                at: now.0,
                by_workload: true,
                progress,
                ends_workload,
                wait_has_ended: false,
            };
            self.members[place].request = if may_go.is_ok() { Some(request) } else { before };
        }
        let joint = (ends_workload && self.workload.ends_together()).then_some(JointState::Waits);
        may_go.map(|()| AdmittedRequest { ends_workload, joint })
    }
}

/// Reads `owner` and `part` of its pods. Nothing comes from a cache.
pub(crate) async fn read(
    client: &Client,
    pod: &CachedPod,
    owner: &OwnerReference,
    part: ListedPart,
) -> Result<OwnerCounts, ApiError> {
    let ending =
        OwnerCounts { workload: Workload::Ending, members: Vec::new(), version: None, has_idle: false };
    let Some(resource) = resource_of(owner) else { return Ok(ending) };
    let namespace = pod.key().namespace;
    let owners: Api<Owner> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let found = pod_call("read the owner of", &pod.key(), owners.get_opt(&owner.name)).await?;
    let Some(found) = found else { return Ok(ending) };
    let workload = wants(&found, owner, Timestamp::now());
    if workload == Workload::Ending {
        return Ok(ending);
    }
    // Finished pods do not count as replicas.
    let params = ListParams { label_selector: selector(&found), ..ListParams::default() }.fields(ACTIVE);
    let PodList { mut pods, version } =
        pod_list::list(client, &pod.key(), "list the pods with the same owner as", params, part).await?;
    pods.retain(|pod| pod.is_of(owner) && !pod.is_terminating());
    let now = now();
    let has_idle = pods.iter().any(|pod| is_idle(pod, now));
    let members: Vec<WorkloadPod> = pods.into_iter().map(member_of).collect();
    Ok(OwnerCounts { workload, members, version: Some(version), has_idle })
}

fn member_of(pod: PodMetadata) -> WorkloadPod {
    WorkloadPod {
        revision: pod.labels.get(REVISION).cloned(),
        in_service: is_in_service(&pod),
        request: request_of(&pod),
        restarts: pod.restarts,
        name: pod.name,
        uid: pod.uid,
    }
}

/// Returns true if the workload may choose `pod` before a busy pod.
fn is_idle(pod: &PodMetadata, now: UnixNanos) -> bool {
    let text = |key: &str| pod.annotations.get(key).map(String::as_str);
    let is_in_service = pod.labels.contains_key(SERVICE_AVAILABLE);
    let is_busy = BusyClaim::parse(text(BUSY_UNTIL), None).at(now).is_some();
    is_in_service && !is_busy && request_of(pod).is_none() && text(POD_DELETION_COST) != Some(HIGHEST_COST)
}

/// Returns true if `pod` is in service. The labels of a pod that has not opted in carry no state: its workload's
/// controller is responsible for it.
pub(super) fn is_in_service(pod: &PodMetadata) -> bool {
    let labels = &pod.labels;
    labels.contains_key(SERVICE_AVAILABLE)
        || labels.get(CONTROL_LABEL).is_none_or(|value| value != CONTROL_VALUE)
}

/// Returns the deletion request of `pod`. `None` if there is none or it is postponed.
pub(super) fn request_of(pod: &PodMetadata) -> Option<WorkloadPodRequest> {
    let label = pod.labels.get(TO_DELETE)?;
    let operations = Operations::parse(&pod.labels);
    let has = |stage| operations.get(DELETE_OPERATION).is_some_and(|operation| operation.has(stage));
    let progress = match () {
        () if has(Stage::Operate) => DeletionProgress::Granted,
        () if has(Stage::PreChecked) => DeletionProgress::Passed,
        () => DeletionProgress::Requested,
    };
    match pod.annotations.get(DELETION_REQUEST).and_then(|text| DeletionRequest::parse(text)) {
        // A postponed deletion: the pod stays for now.
        Some(request) if request.not_before.is_some() && progress == DeletionProgress::Requested => None,
        Some(request) => Some(WorkloadPodRequest {
            at: request.requested_at,
            by_workload: request.by_workload,
            progress,
            ends_workload: request.ends_workload,
            wait_has_ended: matches!(request.joint, Some(JointState::MayGoSince(_))),
        }),
        None => Some(WorkloadPodRequest {
            at: label.parse().unwrap_or_default(),
            by_workload: false,
            progress,
            ends_workload: false,
            wait_has_ended: false,
        }),
    }
}
