//! The deletion request that a pod carries in an annotation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::time::UnixNanos;

/// The lowest deletion cost. ReplicaSets delete the pod with the lowest cost first.
pub(crate) const LOWEST_COST: &str = "-2147483648";

/// Accounts that delete a pod because its owner or its namespace is gone.
const CLEANERS: [&str; 3] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    // All controllers of a cluster without `--use-service-account-credentials`.
    "system:kube-controller-manager",
];

/// Returns true if `user` deletes pods because their owner or their namespace is gone.
pub(crate) fn is_cleaner(user: &str) -> bool {
    CLEANERS.contains(&user)
}

/// The kind of a deletion request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletionKind {
    /// The pod is deleted.
    Delete,
    /// The pod is evicted, so disruption budgets apply.
    Evict,
}

impl DeletionKind {
    /// Returns the word for messages and metrics: `deletion` or `eviction`.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            DeletionKind::Delete => "deletion",
            DeletionKind::Evict => "eviction",
        }
    }
}

/// The state of a pod that may have to wait for other pods of its workload
/// ([`Workload::joint_deletion`](crate::deletion::Workload::joint_deletion)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JointState {
    /// The pod stays until Podward stores [`JointState::MayGoSince`].
    Waits,
    /// The pod may be deleted from this time on, in nanoseconds since the Unix epoch. If several pods go together, it is in
    /// the future when it is stored, so that it is stored on all of them before one of them can be deleted.
    MayGoSince(i64),
}

/// A request to delete or evict a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionRequest {
    /// The kind of the request.
    pub kind: DeletionKind,
    /// The name of the user who requested the deletion.
    pub requested_by: String,
    /// The groups of the user, for the check of the user's rights before the deletion is executed. Without those that
    /// follow from the name, see [`DeletionRequest::groups`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requester_groups: Vec<String>,
    /// The time of the request, in nanoseconds since the Unix epoch.
    pub requested_at: i64,
    /// The requested grace period in seconds. `None` means the grace period of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// True if the controller of the pod's workload made the request (scale-in, rolling update). The replica counts of
    /// the workload then decide.
    #[serde(default)]
    pub by_workload: bool,
    /// True if the workload ends, as this request of its controller says, or another one that was made for the same pod
    /// ([`Workload::ends_by_request`](crate::deletion::Workload::ends_by_request)). The replica counts do not withdraw it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_workload: bool,
    /// Set if the pod may have to wait for other pods of its workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<JointState>,
    /// The time of the last reservation in the disruption budget, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_at: Option<i64>,
    /// The value of [`POD_DELETION_COST`](crate::keys::POD_DELETION_COST) before the request set it. A cancel restores
    /// it. `Some("")` means that the pod had no such annotation; `None` means that the request did not set the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_before: Option<String>,
    /// True if the label [`PREPARING_TO_DELETE`](crate::keys::PREPARING_TO_DELETE) belonged to another operation when the
    /// request was recorded. A cancel keeps it for that operation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_preparing: bool,
    /// The time at which a postponed request begins again, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
    /// The number of times that the request was postponed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub times_postponed: u32,
    /// The eviction that this request of the workload's controller took over. It continues if the workload wants the pod
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_eviction: Option<Box<DeletionRequest>>,
    /// The members of the JSON object that this version does not know. They stay when the request is written again.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the shape that serde asks for
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns the groups that every user of this name has.
fn known_groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    if let Some((namespace, _)) = account {
        groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    groups
}

impl DeletionRequest {
    /// Returns a request of `requested_by` with the grace period of the pod.
    #[must_use]
    pub fn new(kind: DeletionKind, requested_by: &str, at: UnixNanos) -> Self {
        DeletionRequest {
            kind,
            requested_by: requested_by.to_owned(),
            requester_groups: Vec::new(),
            requested_at: at.0,
            grace_period_seconds: None,
            by_workload: false,
            ends_workload: false,
            joint: None,
            reserved_at: None,
            cost_before: None,
            was_preparing: false,
            not_before: None,
            times_postponed: 0,
            replaced_eviction: None,
            unknown: Map::new(),
        }
    }

    /// Adds the groups of the user.
    #[must_use]
    pub fn with_groups(self, groups: &[String]) -> Self {
        let known = known_groups(&self.requested_by);
        let requester_groups = groups.iter().filter(|group| !known.contains(group)).cloned().collect();
        DeletionRequest { requester_groups, ..self }
    }

    /// Returns the groups of the user. They include `system:authenticated`, and those of a service account, which its
    /// name determines.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        self.requester_groups.iter().cloned().chain(known_groups(&self.requested_by)).collect()
    }

    /// Reads the text of the annotation. Returns `None` when it is not a deletion request.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the annotation.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the request that results when `self` is on the pod and `new` is requested too, or `None` when `self`
    /// stays as it is.
    ///
    /// A delete replaces an eviction, and a request of another user replaces a request of the workload's controller. A
    /// delete of the workload's controller changes only an eviction, and keeps it for the case that the workload wants the
    /// pod again. The caller checks first that the workload has the pod in excess. An eviction by another user is kept in
    /// the same way if it comes after that delete.
    ///
    /// Of two deletes by others, the first one stays, unless the second one is made because the owner or the namespace of
    /// the pod is gone. If the pod is `of_job`, a delete of its controller may mean that the Job ends, so it returns the
    /// request with [`DeletionRequest::ends_workload`] and [`DeletionRequest::joint`] of `new`; the caller finds out what
    /// they are. They stay when another request replaces this one.
    #[must_use]
    pub fn joined_by(&self, new: &DeletionRequest, of_job: bool) -> Option<DeletionRequest> {
        if self.by_workload && new.kind == DeletionKind::Evict && !new.by_workload {
            let (cost_before, was_preparing) = (self.cost_before.clone(), self.was_preparing);
            let eviction = Box::new(DeletionRequest { cost_before, was_preparing, ..new.clone() });
            let joined = DeletionRequest { replaced_eviction: Some(eviction), ..self.clone() };
            return self.replaced_eviction.is_none().then_some(joined);
        }
        let raises = self.kind == DeletionKind::Evict && new.kind == DeletionKind::Delete;
        let takes_over = self.by_workload && new.kind == DeletionKind::Delete;
        let repeats = self.kind == DeletionKind::Delete && new.kind == DeletionKind::Delete;
        let cleans_up =
            repeats && !new.by_workload && is_cleaner(&new.requested_by) && !is_cleaner(&self.requested_by);
        if !(raises || takes_over || cleans_up) || (new.by_workload && self.by_workload) {
            let may_end = of_job && repeats && new.by_workload && !self.by_workload && !self.ends_workload;
            let (ends_workload, joint) = (new.ends_workload, new.joint);
            return may_end.then(|| DeletionRequest { ends_workload, joint, ..self.clone() });
        }
        let eviction = || Box::new(DeletionRequest { not_before: None, ..self.clone() });
        Some(DeletionRequest {
            replaced_eviction: new.by_workload.then(eviction),
            cost_before: self.cost_before.clone(),
            was_preparing: self.was_preparing,
            reserved_at: self.reserved_at,
            requested_at: self.requested_at,
            grace_period_seconds: new
                .grace_period_seconds
                .or(self.grace_period_seconds.filter(|_| cleans_up)),
            ends_workload: self.ends_workload || new.ends_workload,
            joint: self.joint.or(new.joint),
            unknown: self.unknown.clone(),
            ..new.clone()
        })
    }
}
