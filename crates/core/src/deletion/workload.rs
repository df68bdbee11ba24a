//! The check that a workload has more pods than it wants.
//!
//! A workload controller retries a refused delete within milliseconds and may choose other pods. So its requests are
//! counted: never more pods are deleted than there are surplus pods.

use std::collections::BTreeMap;

/// The replica counts of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The workload is gone, is being deleted, or has failed: its controller may delete any pod.
    Ending,
    /// A ReplicaSet or a ReplicationController: any pods up to this count.
    Count {
        /// The wanted number of pods.
        wanted: u32,
    },
    /// A Job that does not say that it ends. Its controller deletes surplus pods, and all pods when the Job ends by a
    /// policy: it reports the end only after the pods are deleted.
    Job {
        /// The wanted number of active pods.
        wanted: u32,
        /// The number of active pods that its controller has reported last.
        reported: u32,
        /// The number of restarts of containers in its pods at which the Job fails. `None` if they do not count.
        restart_limit: Option<u32>,
    },
    /// A StatefulSet.
    StatefulSet {
        /// The first ordinal.
        start: u32,
        /// The wanted number of pods from the first ordinal on.
        wanted: u32,
        /// The revision that pods are updated to; `None` while the controller has not reported it.
        update_revision: Option<String>,
    },
    /// A DaemonSet: its controller chooses the pods, up to a number at a time.
    DaemonSet {
        /// The number of nodes that may be without a pod in service because of deletions.
        at_once: u32,
        /// The number of nodes that are to have a pod.
        wanted: u32,
    },
}

/// The progress of the operation of a request, the furthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletionProgress {
    /// The delete was sent.
    Leaving,
    /// The pod is out of service and may be deleted.
    Granted,
    /// The replica counts allow the deletion, and the pod leaves service.
    Passed,
    /// The deletion is requested.
    Requested,
}

/// The deletion request of a workload's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadPodRequest {
    /// The time of the request, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// True if the workload's own controller made the request.
    pub by_workload: bool,
    /// The progress.
    pub progress: DeletionProgress,
    /// True if the request means that the workload ends, see [`Workload::ends_by_request`].
    pub ends_workload: bool,
    /// True if the pod does not wait for other pods any more, see [`Workload::joint_deletion`].
    pub wait_has_ended: bool,
}

/// An active pod of a workload: neither terminating nor finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadPod {
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The label `controller-revision-hash`.
    pub revision: Option<String>,
    /// True if the pod is in service, or if it has not opted in.
    pub in_service: bool,
    /// The number of restarts of its containers. 0 if restarts do not count for the workload.
    pub restarts: u32,
    /// The deletion request.
    pub request: Option<WorkloadPodRequest>,
}

/// The decision about a request of a workload's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The pod may be deleted.
    Go,
    /// The workload wants the pod, for this reason: the request is refused or withdrawn.
    Keep(String),
}

/// Returns whether `user` is the controller of the pod's owner: a service account of kube-controller-manager for each
/// controller, or one user for all without `--use-service-account-credentials`. That user also deletes pods because of
/// taints: `is_taint_eviction` is true if the pod says that it is such a delete.
#[must_use]
pub fn is_by_workload(user: &str, owner_kind: Option<&str>, is_taint_eviction: bool) -> bool {
    let account = match owner_kind {
        Some("ReplicaSet") => "replicaset-controller",
        Some("ReplicationController") => "replication-controller",
        Some("StatefulSet") => "statefulset-controller",
        Some("DaemonSet") => "daemon-set-controller",
        Some("Job") => "job-controller",
        _ => return false,
    };
    (user == "system:kube-controller-manager" && !is_taint_eviction)
        || user.strip_prefix("system:serviceaccount:kube-system:").is_some_and(|name| name == account)
}

impl Workload {
    /// Decides on every request of the workload's own controller among `members`, by UID. Pods with a request of
    /// another user are not in the result: they are deleted, and they count.
    ///
    /// Competing requests are ordered by progress, then age, then name. So a decision does not change by itself, and
    /// when there are fewer surplus pods the newest requests are withdrawn.
    ///
    /// ```
    /// use podward_core::deletion::{WorkloadPod, WorkloadPodRequest, DeletionProgress, Ruling, Workload};
    ///
    /// let pod = |name: &str, requested_at: Option<i64>| WorkloadPod {
    ///     name: name.to_owned(),
    ///     uid: name.to_owned(),
    ///     revision: None,
    ///     in_service: true,
    ///     restarts: 0,
    ///     request: requested_at.map(|at| WorkloadPodRequest { at, by_workload: true, progress: DeletionProgress::Requested, ends_workload: false, wait_has_ended: false }),
    /// };
    /// let members = [pod("a", Some(3)), pod("b", Some(1)), pod("c", Some(2)), pod("d", None)];
    /// let rulings = Workload::Count { wanted: 2 }.rule(&members);
    /// assert_eq!(rulings["b"], Ruling::Go);
    /// assert_eq!(rulings["c"], Ruling::Go);
    /// assert!(matches!(rulings["a"], Ruling::Keep(_)), "the newest of three, where two are too many");
    /// ```
    #[must_use]
    pub fn rule<'m>(&self, members: &'m [WorkloadPod]) -> BTreeMap<&'m str, Ruling> {
        let mut requests: Vec<(&WorkloadPod, WorkloadPodRequest)> =
            members.iter().filter_map(|member| Some((member, member.request?))).collect();
        let ends = |request: &WorkloadPodRequest| request.by_workload && request.ends_workload;
        let ending: Vec<&str> =
            requests.iter().filter(|(_, of)| ends(of)).map(|(member, _)| member.uid.as_str()).collect();
        let of_others = requests.iter().filter(|(_, of)| !of.by_workload || ends(of)).count();
        requests.retain(|(_, request)| request.by_workload && !ends(request));
        requests.sort_by(|(one, a), (other, b)| {
            (a.progress, a.at, &one.name).cmp(&(b.progress, b.at, &other.name))
        });
        let room = self.room(members.len()).map(|room| room.saturating_sub(of_others));
        let without_pod = self.nodes_without_pod(members);
        let rulings = requests.iter().enumerate().map(|(place, (member, request))| {
            // A pod that passed its pre-check is not kept because another one fails later.
            let would_leave = member.in_service && request.progress == DeletionProgress::Requested;
            let taken = place + if would_leave { without_pod } else { 0 };
            let ruling = match room {
                Some(room) if taken >= room => Ruling::Keep(self.full(members.len(), of_others)),
                Some(_) => Ruling::Go,
                None => self.rule_one(member),
            };
            (member.uid.as_str(), ruling)
        });
        rulings.chain(ending.iter().map(|uid| (*uid, Ruling::Go))).collect()
    }

    /// Returns whether a request of the workload's controller means that the workload ends: a Job has no surplus pods, so
    /// its controller deletes pods because of a success policy, a failure policy or a limit, or because two pods have one
    /// index.
    ///
    /// While its controller reports surplus pods, its request may be an older one for one of them: it has not observed yet
    /// that they are gone. It reports what it has observed even if its request is refused.
    #[must_use]
    pub fn ends_by_request(&self, members: &[WorkloadPod]) -> bool {
        matches!(
            self,
            Workload::Job { wanted, reported, .. } if members.len() <= *wanted as usize && reported <= wanted
        )
    }

    /// Returns whether `uid` may be deleted if its workload requests it at `at`, the latest of all requests.
    ///
    /// # Errors
    /// Fails with the reason for which the pod stays.
    pub fn may_go(&self, members: &[WorkloadPod], uid: &str, at: i64) -> Result<(), String> {
        let request = WorkloadPodRequest {
            at,
            by_workload: true,
            progress: DeletionProgress::Requested,
            ends_workload: self.ends_by_request(members),
            wait_has_ended: false,
        };
        let mut members = members.to_vec();
        for member in members.iter_mut().filter(|member| member.uid == uid && member.request.is_none()) {
            member.request = Some(request);
        }
        match self.rule(&members).remove(uid) {
            Some(Ruling::Keep(why)) => Err(why),
            Some(Ruling::Go) | None => Ok(()),
        }
    }

    /// Returns how many of `active` pods may be deleted; `None` when each pod is decided by itself.
    fn room(&self, active: usize) -> Option<usize> {
        match self {
            Workload::Count { wanted } | Workload::Job { wanted, .. } => {
                Some(active.saturating_sub(*wanted as usize))
            }
            Workload::DaemonSet { at_once, .. } => Some((*at_once).max(1) as usize),
            Workload::Ending | Workload::StatefulSet { .. } => None,
        }
    }

    /// Returns how many nodes of a DaemonSet have no pod in service, apart from those whose pod is being deleted. Its
    /// controller counts them as unavailable, but from a cache: it may request the next delete before it observes that
    /// the previous pod is gone.
    fn nodes_without_pod(&self, members: &[WorkloadPod]) -> usize {
        let Workload::DaemonSet { wanted, .. } = self else { return 0 };
        let counted = members.iter().filter(|member| member.in_service || member.request.is_some()).count();
        (*wanted as usize).saturating_sub(counted)
    }

    fn rule_one(&self, member: &WorkloadPod) -> Ruling {
        let Workload::StatefulSet { start, wanted, update_revision } = self else { return Ruling::Go };
        let ordinal: Option<u32> = member.name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
        let wanted_ordinals = *start..start.saturating_add(*wanted);
        if ordinal.is_none_or(|ordinal| !wanted_ordinals.contains(&ordinal)) {
            return Ruling::Go;
        }
        match (update_revision, &member.revision) {
            (None, _) => Ruling::Keep("its StatefulSet has not reported its update revision yet".to_owned()),
            (Some(update), Some(own)) if update == own => Ruling::Keep(format!(
                "its StatefulSet wants {wanted} pods including this one, and the pod already has the wanted revision {own}"
            )),
            _ => Ruling::Go,
        }
    }

    fn full(&self, active: usize, of_others: usize) -> String {
        let others = match of_others {
            0 => String::new(),
            some => format!(" ({some} of them being deleted for other requests)"),
        };
        match self {
            Workload::DaemonSet { at_once, .. } => format!(
                "its DaemonSet may replace {} pods at a time, and that many are already being deleted or not in service",
                (*at_once).max(1)
            ),
            Workload::Count { wanted } | Workload::Job { wanted, .. } => format!(
                "its workload has {active} active pods{others} and wants {wanted}; all surplus pods are already being deleted"
            ),
            Workload::Ending | Workload::StatefulSet { .. } => String::new(),
        }
    }
}
