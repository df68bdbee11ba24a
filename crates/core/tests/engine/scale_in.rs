//! Requests of a workload's own controller: never more pods go than it has too many, whatever the order in which
//! replicas of the controller, two leaders, a ReplicaSet that chooses again and again, and people act. And it gets what
//! it wants.

use std::collections::BTreeMap;

use podward_core::deletion::{
    DeletionProgress, Ruling, Workload, WorkloadPod, WorkloadPodRequest, WorkloadRulings, is_by_workload,
};
use proptest::collection::vec;
use proptest::prelude::*;

mod jobs;

/// A pod as it is stored.
#[derive(Clone, Debug)]
struct Stored {
    member: WorkloadPod,
    version: u64,
    gone: bool,
}

/// A write that was decided on and has not landed. It is refused if its pod has changed meanwhile.
#[derive(Clone, Debug)]
struct InFlight {
    pod: usize,
    seen: u64,
    write: Write,
}

#[derive(Clone, Debug)]
enum Write {
    DeletionRequest(WorkloadPodRequest),
    Pass,
    Grant,
    Cancel,
    Delete,
}

#[derive(Clone, Debug)]
enum Act {
    Scale(u32),
    /// The ReplicaSet deletes the pod: any replica reads the numbers and decides.
    Ask(usize),
    /// Somebody else deletes it.
    AskByOthers(usize),
    /// The leader looks at it.
    Look(usize),
    /// One of the writes under way lands.
    Land(usize),
    /// Another leader: what the first remembered is lost, what it has sent still lands.
    NewLeader,
    /// A clock that is behind.
    Clock(i64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => (0..7u32).prop_map(Act::Scale),
        4 => (0..6usize).prop_map(Act::Ask),
        1 => (0..6usize).prop_map(Act::AskByOthers),
        8 => (0..6usize).prop_map(Act::Look),
        8 => (0..8usize).prop_map(Act::Land),
        1 => Just(Act::NewLeader),
        1 => (-5..5i64).prop_map(Act::Clock),
    ]
}

struct Model {
    pods: Vec<Stored>,
    wanted: u32,
    leader: WorkloadRulings,
    in_flight: Vec<InFlight>,
    clock: i64,
    skew: i64,
    /// Nothing happens but this workload's requests, and one leader: then not even a permission is given to one pod too
    /// many.
    one_leader: bool,
}

impl Model {
    fn new(pods: usize, wanted: u32) -> Self {
        let pod = |number: usize| Stored {
            member: WorkloadPod {
                name: format!("web-{number}"),
                uid: format!("u{number}"),
                revision: None,
                in_service: true,
                restarts: 0,
                request: None,
            },
            version: 1,
            gone: false,
        };
        let pods = (0..pods).map(pod).collect();
        Model {
            pods,
            wanted,
            leader: WorkloadRulings::default(),
            in_flight: Vec::new(),
            clock: 100,
            skew: 0,
            one_leader: false,
        }
    }

    fn members(&self) -> Vec<WorkloadPod> {
        self.pods.iter().filter(|pod| !pod.gone).map(|pod| pod.member.clone()).collect()
    }

    fn workload(&self) -> Workload {
        Workload::Count { wanted: self.wanted }
    }

    fn send(&mut self, pod: usize, write: Write) {
        let seen = self.pods[pod].version;
        self.in_flight.push(InFlight { pod, seen, write });
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        self.clock += 1;
        let has = |pods: &[Stored], pod: usize| pods.get(pod).is_some_and(|pod| !pod.gone);
        match *act {
            Act::Scale(wanted) => {
                // What was decided before the workload wanted more may have landed just before just as well.
                while wanted > self.wanted
                    && self.in_flight.iter().any(|write| matches!(write.write, Write::Delete))
                {
                    self.land(0)?;
                }
                self.wanted = wanted;
            }
            Act::Ask(pod) if has(&self.pods, pod) => {
                let (members, at) = (self.members(), self.clock + self.skew);
                let uid = self.pods[pod].member.uid.clone();
                let is_new = self.pods[pod].member.request.is_none();
                if is_new && self.workload().may_go(&members, &uid, at).is_ok() {
                    self.send(
                        pod,
                        Write::DeletionRequest(WorkloadPodRequest {
                            at,
                            by_workload: true,
                            progress: DeletionProgress::Requested,
                            ends_workload: false,
                            wait_has_ended: false,
                        }),
                    );
                }
            }
            Act::AskByOthers(pod) if has(&self.pods, pod) && self.pods[pod].member.request.is_none() => {
                let at = self.clock + self.skew;
                self.send(
                    pod,
                    Write::DeletionRequest(WorkloadPodRequest {
                        at,
                        by_workload: false,
                        progress: DeletionProgress::Requested,
                        ends_workload: false,
                        wait_has_ended: false,
                    }),
                );
            }
            Act::Look(pod) if has(&self.pods, pod) => self.look(pod),
            Act::Land(number) if number < self.in_flight.len() => self.land(number)?,
            Act::NewLeader => self.leader = WorkloadRulings::default(),
            Act::Clock(skew) => self.skew = skew,
            _ => {}
        }
        Ok(())
    }

    /// Does what `step` and `execute` of the leader do.
    fn look(&mut self, pod: usize) {
        let Some(request) = self.pods[pod].member.request else { return };
        let (workload, members) = (self.workload(), self.members());
        let uid = self.pods[pod].member.uid.clone();
        let keeps = |rulings: BTreeMap<String, Ruling>| matches!(rulings.get(&uid), Some(Ruling::Keep(_)));
        let (next, kept) = match request.progress {
            DeletionProgress::Granted => {
                (Write::Delete, request.by_workload && keeps(self.leader.final_ruling(&workload, &members)))
            }
            DeletionProgress::Passed => {
                (Write::Grant, request.by_workload && keeps(self.leader.rule(&workload, &members)))
            }
            _ => (Write::Pass, request.by_workload && keeps(self.leader.rule(&workload, &members))),
        };
        self.send(pod, if kept { Write::Cancel } else { next });
    }

    fn land(&mut self, number: usize) -> Result<(), TestCaseError> {
        let InFlight { pod, seen, write } = self.in_flight.remove(number);
        let active = self.members().len();
        let stored = &mut self.pods[pod];
        if stored.gone || stored.version != seen {
            return Ok(());
        }
        stored.version += 1;
        match write {
            Write::DeletionRequest(request) => stored.member.request = Some(request),
            Write::Cancel => stored.member.request = None,
            Write::Pass | Write::Grant => {
                let progress = if matches!(write, Write::Pass) {
                    DeletionProgress::Passed
                } else {
                    DeletionProgress::Granted
                };
                if let Some(request) = &mut stored.member.request {
                    request.progress = progress;
                }
                let out = |member: &WorkloadPod| {
                    member.request.is_some_and(|request| {
                        request.by_workload && request.progress <= DeletionProgress::Granted
                    })
                };
                let granted = self.members().iter().filter(|member| out(member)).count();
                prop_assert!(
                    !self.one_leader || granted <= active.saturating_sub(self.wanted as usize),
                    "{granted} of {active} granted where {} are wanted",
                    self.wanted
                );
            }
            Write::Delete => {
                let by_workload = stored.member.request.is_some_and(|request| request.by_workload);
                stored.gone = true;
                prop_assert!(
                    !by_workload || active > self.wanted as usize,
                    "{} deleted of {active} where {} are wanted",
                    self.pods[pod].member.name,
                    self.wanted
                );
                if !by_workload {
                    // Nobody can foresee what happens to pods otherwise: a delete that was decided on at the same
                    // moment may be one too many then, and the workload makes another pod. It is not what is proven
                    // here.
                    self.in_flight.retain(|other| !matches!(other.write, Write::Delete));
                    self.leader = WorkloadRulings::default();
                }
            }
        }
        Ok(())
    }

    /// Everybody does what he has to, the ReplicaSet always choosing anew, until it has what it wants.
    fn settle(&mut self, choice: usize) -> Result<(), TestCaseError> {
        for round in 0..60 {
            let members = self.members();
            let is_enough = members.len() <= self.wanted as usize;
            if is_enough && self.in_flight.is_empty() && members.iter().all(|member| member.request.is_none())
            {
                return Ok(());
            }
            let active: Vec<usize> = (0..self.pods.len()).filter(|pod| !self.pods[*pod].gone).collect();
            let too_many = active.len().saturating_sub(self.wanted as usize);
            for place in 0..too_many {
                self.act(&Act::Ask(active[(place + choice + round) % active.len()]))?;
            }
            for pod in 0..self.pods.len() {
                self.act(&Act::Look(pod))?;
            }
            while !self.in_flight.is_empty() {
                self.land(0)?;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn never_more_go_than_are_too_many(
        pods in 1..7usize, wanted in 0..7u32, acts in vec(act(), 0..80), choice in 0..7usize,
    ) {
        let mut model = Model::new(pods, wanted);
        for act in &acts {
            model.act(act)?;
        }
        model.settle(choice)?;
        let left = model.members();
        prop_assert!(left.len() <= model.wanted as usize, "{left:?} where {} are wanted", model.wanted);
        prop_assert!(left.iter().all(|member| member.request.is_none()), "{left:?}");
    }

    #[test]
    fn without_others_exactly_the_surplus_goes(
        pods in 1..7usize, wanted in 0..7u32, acts in vec(act(), 0..80), choice in 0..7usize, one_leader in any::<bool>(),
    ) {
        let mut model = Model::new(pods, wanted);
        model.one_leader = one_leader;
        for act in &acts {
            match act {
                Act::AskByOthers(_) | Act::Scale(_) => {}
                Act::NewLeader if one_leader => {}
                act => model.act(act)?,
            }
        }
        model.settle(choice)?;
        prop_assert_eq!(model.members().len(), pods.min(wanted as usize));
    }
}

fn member(name: &str, request: Option<WorkloadPodRequest>) -> WorkloadPod {
    let (name, uid) = (name.to_owned(), name.to_owned());
    WorkloadPod { name, uid, revision: None, in_service: true, restarts: 0, request }
}

fn requested(at: i64, by_workload: bool, progress: DeletionProgress) -> Option<WorkloadPodRequest> {
    Some(WorkloadPodRequest { at, by_workload, progress, ends_workload: false, wait_has_ended: false })
}

fn go(rulings: &BTreeMap<&str, Ruling>) -> Vec<String> {
    rulings.iter().filter(|(_, ruling)| **ruling == Ruling::Go).map(|(uid, _)| (*uid).to_owned()).collect()
}

#[test]
fn who_goes_first() {
    use DeletionProgress::{Granted, Passed, Requested};
    let members = [
        member("a", requested(1, true, Requested)),
        member("b", requested(2, true, Granted)),
        member("c", requested(3, true, Passed)),
        member("d", requested(4, false, Requested)),
        member("e", requested(1, true, Requested)),
        member("f", None),
    ];
    let goes = |wanted| go(&Workload::Count { wanted }.rule(&members));
    assert_eq!(goes(6), Vec::<String>::new());
    assert_eq!(goes(5), Vec::<String>::new(), "one is too many, and d goes at somebody else's request");
    assert_eq!(goes(4), ["b"]);
    assert_eq!(goes(3), ["b", "c"]);
    assert_eq!(goes(2), ["a", "b", "c"], "the oldest, then by name");
    assert_eq!(goes(1), ["a", "b", "c", "e"]);
    let Err(why) = (Workload::Count { wanted: 2 }).may_go(&members, "f", 9) else { panic!("taken") };
    assert!(why.contains("6 active pods") && why.contains("wants 2"), "{why}");
    assert!(Workload::Count { wanted: 0 }.may_go(&members, "f", 9).is_ok());
}

#[test]
fn stateful_sets_daemon_sets_and_what_ends() {
    let of = |name: &str, revision: &str| WorkloadPod {
        revision: Some(revision.to_owned()),
        ..member(name, requested(1, true, DeletionProgress::Requested))
    };
    let members =
        [of("db-0", "new"), of("db-1", "old"), of("db-2", "new"), of("db-3", "new"), of("db-x", "new")];
    let set = |start, update: Option<&str>| Workload::StatefulSet {
        start,
        wanted: 3,
        update_revision: update.map(ToOwned::to_owned),
    };
    assert_eq!(go(&set(0, Some("new")).rule(&members)), ["db-1", "db-3", "db-x"]);
    assert_eq!(go(&set(1, Some("new")).rule(&members)), ["db-0", "db-1", "db-x"]);
    assert_eq!(go(&set(0, None).rule(&members)), ["db-3", "db-x"], "nobody knows yet what is old");
    assert_eq!(go(&Workload::DaemonSet { at_once: 2, wanted: 5 }.rule(&members)), ["db-0", "db-1"]);
    assert_eq!(go(&Workload::DaemonSet { at_once: 0, wanted: 5 }.rule(&members)), ["db-0"]);
    assert_eq!(go(&Workload::Ending.rule(&members)).len(), 5);
    assert!(Workload::Count { wanted: 5 }.may_go(&[], "nobody", 1).is_ok(), "a pod that is gone may go");
}

/// The DaemonSet controller reads pods from a cache. It may request the delete of the next pod when the previous one is
/// gone and its replacement does not serve yet.
#[test]
fn the_next_pod_of_a_daemon_set_stays_until_the_replacement_serves() {
    use DeletionProgress::{Passed, Requested};
    let set = Workload::DaemonSet { at_once: 1, wanted: 3 };
    let replacement = WorkloadPod { in_service: false, ..member("a2", None) };
    let next = member("b", None);
    let missing = [next.clone(), member("c", None)];
    let starting = [replacement.clone(), next.clone(), member("c", None)];
    for members in [missing.as_slice(), &starting] {
        let why = set.may_go(members, "b", 9).unwrap_err();
        assert!(why.contains("already being deleted or not in service"), "{why}");
    }
    let serving = [WorkloadPod { in_service: true, ..replacement.clone() }, next.clone(), member("c", None)];
    assert_eq!(set.may_go(&serving, "b", 9), Ok(()));

    // A pod that does not serve can be deleted itself, and a pod that has passed stays out of service.
    let out = |name| WorkloadPod { in_service: false, ..member(name, None) };
    let failing = [member("a", None), out("b"), out("c")];
    assert_eq!(set.may_go(&failing, "b", 9), Ok(()));
    assert!(set.may_go(&failing, "a", 9).is_err());
    let passed = [replacement, member("b", requested(1, true, Passed)), member("c", None)];
    assert_eq!(go(&set.rule(&passed)), ["b"]);
    let requested_only = [member("b", requested(1, true, Requested)), member("c", None)];
    assert_eq!(go(&set.rule(&requested_only)), Vec::<String>::new());

    // With surge, a node may have two pods.
    let surge = [member("a", None), member("a2", None), next, member("c", None)];
    assert_eq!(set.may_go(&surge, "b", 9), Ok(()));
}

#[test]
fn the_users_that_count_as_the_workload() {
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let rows = [
        (account("replicaset-controller"), Some("ReplicaSet"), true),
        (account("replicaset-controller"), Some("Job"), false),
        (account("replicaset-controller"), None, false),
        (account("replication-controller"), Some("ReplicationController"), true),
        (account("statefulset-controller"), Some("StatefulSet"), true),
        (account("daemon-set-controller"), Some("DaemonSet"), true),
        (account("job-controller"), Some("Job"), true),
        (account("generic-garbage-collector"), Some("ReplicaSet"), false),
        (account("replicaset-controller"), Some("CloneSet"), false),
        ("system:kube-controller-manager".to_owned(), Some("ReplicaSet"), true),
        ("system:kube-controller-manager".to_owned(), None, false),
        ("jane".to_owned(), Some("ReplicaSet"), false),
    ];
    for (user, kind, expected) in rows {
        assert_eq!(is_by_workload(&user, kind, false), expected, "{user} of {kind:?}");
    }
    // The condition can be older than a delete by the workload, whose own account cannot be mistaken.
    assert!(is_by_workload(&account("replicaset-controller"), Some("ReplicaSet"), true));
    assert!(!is_by_workload("system:kube-controller-manager", Some("ReplicaSet"), true));
}

/// Requests are timed by the replica that records them, and its clock may be behind: a request may come late and still
/// be the older one.
#[test]
fn a_place_that_was_given_is_not_given_again_to_an_older_request() {
    use DeletionProgress::{Granted, Requested};
    let workload = Workload::Count { wanted: 1 };
    let mut account = WorkloadRulings::default();
    let first = [member("a", None), member("b", requested(10, true, Requested))];
    assert_eq!(account.rule(&workload, &first)["b"], Ruling::Go);
    // What was ruled is not written yet, and the API server shows nothing of it.
    let late = [member("a", requested(5, true, Requested)), member("b", requested(10, true, Requested))];
    let rulings = account.rule(&workload, &late);
    assert_eq!(rulings["b"], Ruling::Go);
    assert!(matches!(rulings["a"], Ruling::Keep(_)));

    let mut account = WorkloadRulings::default();
    let one = [member("a", requested(5, true, Requested)), member("b", requested(10, true, Granted))];
    assert_eq!(account.final_ruling(&workload, &one)["b"], Ruling::Go);
    let both = [member("a", requested(5, true, Granted)), member("b", requested(10, true, Granted))];
    let rulings = account.final_ruling(&workload, &both);
    assert_eq!(rulings["b"], Ruling::Go);
    assert!(matches!(rulings["a"], Ruling::Keep(_)));
    // The first was called off after all.
    let left = [member("a", requested(5, true, Granted)), member("b", None)];
    assert_eq!(account.final_ruling(&workload, &left)["a"], Ruling::Go);
}
