//! Whether a workload really has more pods than it wants.
//!
//! A workload controller whose delete is refused tries again within milliseconds, and may choose other pods. So its wishes are
//! counted: never more pods go than there are too many.

use std::collections::BTreeMap;

/// What a workload wants, as far as it decides which of its pods may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The workload is gone, is being deleted, or has given up: whatever its controller deletes may go.
    Ending,
    /// A ReplicaSet or a ReplicationController: so many pods, no matter which. Also a Job, of its active pods.
    Count {
        /// How many it wants.
        wanted: u32,
    },
    /// A StatefulSet.
    StatefulSet {
        /// The first ordinal.
        start: u32,
        /// How many pods it wants, from that one on.
        wanted: u32,
        /// The revision that pods are updated to; `None` while the controller hasn't said which it is.
        update_revision: Option<String>,
    },
    /// A DaemonSet: its controller says which; no more than this many at a time.
    DaemonSet {
        /// How many may be on their way out at once.
        at_once: u32,
    },
}

/// How far the operation of a wish is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// The delete is under way.
    Leaving,
    /// The pod is out of service and may be deleted.
    Granted,
    /// The numbers were counted, and the pod leaves service.
    Passed,
    /// It was asked for.
    Asked,
}

/// The wish that a member carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberWish {
    /// When, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// Whether the workload's own controller wished it.
    pub by_workload: bool,
    /// How far it is.
    pub progress: Progress,
}

/// One active pod of a workload: neither terminating nor run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The label `controller-revision-hash`.
    pub revision: Option<String>,
    /// The wish to delete it.
    pub wish: Option<MemberWish>,
}

/// What becomes of a workload's wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The pod goes.
    Go,
    /// The workload wants the pod, for this reason: the wish is refused, or taken back.
    Keep(String),
}

/// The controller of `kind` (a pod's managing owner), by the accounts that the controllers of kube-controller-manager act under:
/// one each, or, without `--use-service-account-credentials`, one for all.
#[must_use]
pub fn is_by_workload(user: &str, owner_kind: Option<&str>) -> bool {
    let account = match owner_kind {
        Some("ReplicaSet") => "replicaset-controller",
        Some("ReplicationController") => "replication-controller",
        Some("StatefulSet") => "statefulset-controller",
        Some("DaemonSet") => "daemon-set-controller",
        Some("Job") => "job-controller",
        _ => return false,
    };
    user == "system:kube-controller-manager"
        || user.strip_prefix("system:serviceaccount:kube-system:").is_some_and(|name| name == account)
}

impl Workload {
    /// Rules on every wish of the workload's own controller among `members`: UID to ruling. Members whose wish others made are not in
    /// it: they go, and count.
    ///
    /// Of wishes that compete those that are furthest go first, then the oldest, then by name. So a ruling doesn't change by itself,
    /// and when fewer pods are too many the newest wishes are taken back.
    ///
    /// ```
    /// use podward_core::deletion::{Member, MemberWish, Progress, Ruling, Workload};
    ///
    /// let pod = |name: &str, wished_at: Option<i64>| Member {
    ///     name: name.to_owned(),
    ///     uid: name.to_owned(),
    ///     revision: None,
    ///     wish: wished_at.map(|at| MemberWish { at, by_workload: true, progress: Progress::Asked }),
    /// };
    /// let members = [pod("a", Some(3)), pod("b", Some(1)), pod("c", Some(2)), pod("d", None)];
    /// let rulings = Workload::Count { wanted: 2 }.rule(&members);
    /// assert_eq!(rulings["b"], Ruling::Go);
    /// assert_eq!(rulings["c"], Ruling::Go);
    /// assert!(matches!(rulings["a"], Ruling::Keep(_)), "the newest of three, where two are too many");
    /// ```
    #[must_use]
    pub fn rule<'m>(&self, members: &'m [Member]) -> BTreeMap<&'m str, Ruling> {
        let mut wishes: Vec<(&Member, MemberWish)> =
            members.iter().filter_map(|member| Some((member, member.wish?))).collect();
        let of_others = wishes.iter().filter(|(_, wish)| !wish.by_workload).count();
        wishes.retain(|(_, wish)| wish.by_workload);
        wishes.sort_by(|(one, a), (other, b)| {
            (a.progress, a.at, &one.name).cmp(&(b.progress, b.at, &other.name))
        });
        let room = self.room(members.len()).map(|room| room.saturating_sub(of_others));
        let rulings = wishes.iter().enumerate().map(|(place, (member, _))| {
            let ruling = match room {
                Some(room) if place >= room => Ruling::Keep(self.full(members.len(), of_others)),
                Some(_) => Ruling::Go,
                None => self.rule_one(member),
            };
            (member.uid.as_str(), ruling)
        });
        rulings.collect()
    }

    /// Whether `uid` may go if its workload wishes it at `at`, the latest of all.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn may_go(&self, members: &[Member], uid: &str, at: i64) -> Result<(), String> {
        let mut members = members.to_vec();
        for member in members.iter_mut().filter(|member| member.uid == uid && member.wish.is_none()) {
            member.wish = Some(MemberWish { at, by_workload: true, progress: Progress::Asked });
        }
        match self.rule(&members).remove(uid) {
            Some(Ruling::Keep(why)) => Err(why),
            Some(Ruling::Go) | None => Ok(()),
        }
    }

    /// How many of `active` pods may go in all; `None` where each pod is judged by itself.
    fn room(&self, active: usize) -> Option<usize> {
        match self {
            Workload::Count { wanted } => Some(active.saturating_sub(*wanted as usize)),
            Workload::DaemonSet { at_once } => Some((*at_once).max(1) as usize),
            Workload::Ending | Workload::StatefulSet { .. } => None,
        }
    }

    fn rule_one(&self, member: &Member) -> Ruling {
        let Workload::StatefulSet { start, wanted, update_revision } = self else { return Ruling::Go };
        let ordinal: Option<u32> = member.name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
        let wanted_ordinals = *start..start.saturating_add(*wanted);
        if ordinal.is_none_or(|ordinal| !wanted_ordinals.contains(&ordinal)) {
            return Ruling::Go;
        }
        match (update_revision, &member.revision) {
            (None, _) => {
                Ruling::Keep("its StatefulSet has not said yet which revision it updates to".to_owned())
            }
            (Some(update), Some(own)) if update == own => Ruling::Keep(format!(
                "its StatefulSet wants {wanted} pods, this one among them, and it is of the revision {own} that it is to be of"
            )),
            _ => Ruling::Go,
        }
    }

    fn full(&self, active: usize, of_others: usize) -> String {
        let others = match of_others {
            0 => String::new(),
            some => format!(" ({some} of them on their way out at somebody else's wish)"),
        };
        match self {
            Workload::DaemonSet { at_once } => format!(
                "its DaemonSet may have {} of its pods on their way out at a time, and has them",
                (*at_once).max(1)
            ),
            Workload::Count { wanted } => format!(
                "its workload has {active} active pods{others} and wants {wanted}; as many as are too many are on their way out already"
            ),
            Workload::Ending | Workload::StatefulSet { .. } => String::new(),
        }
    }
}
