//! An API server with one CloneSet, and a controller with a cache that lags behind.

use std::collections::{BTreeMap, BTreeSet};

use podward_core::cloneset::{
    Amount, Hook, Lifecycle, NotReadyKeys, Operation, Plan, PodRevision, PodStep, SetPod, SetSpec, State,
    UpdateKind, UpdateProgress, plan,
};

mod apply;

use apply::{applied, follows, mark, parts};

pub(crate) const NEW: &str = "newly-create";
pub(crate) const IN_PLACE: &str = "blocks-update";
pub(crate) const DELETE: &str = "blocks-delete";
const MARKERS: [&str; 3] = [NEW, IN_PLACE, DELETE];

/// A pod, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredPod {
    version: u64,
    /// The number of its template.
    template: u32,
    /// The number of batches that are not replaced yet, and whether containers are replaced at the moment.
    batches: u8,
    running: bool,
    pub(crate) pod: SetPod,
}

/// The set, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredSet {
    pub(crate) spec: SetSpec,
    pub(crate) template: u32,
    /// The containers that are replaced one after the other.
    pub(crate) batches: u8,
    /// True if pods have opted in to PodOpsLifecycle.
    pub(crate) operations: bool,
}

/// Everything that is stored, and what the controller has seen of it.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) set: StoredSet,
    pub(crate) pods: BTreeMap<String, StoredPod>,
    seen_set: StoredSet,
    seen: BTreeMap<String, StoredPod>,
    next: i64,
    /// True if somebody else has deleted a pod and the controller has not seen it.
    blind: bool,
}

pub(crate) fn hook(name: &str, mark_not_ready: bool) -> Hook {
    let labels = BTreeMap::from([(name.to_owned(), "true".to_owned())]);
    Hook { labels, mark_not_ready, ..Hook::default() }
}

/// `options`: whether hooks take pods out of service, hold traffic, and have a deadline after which pods go on.
pub(crate) fn lifecycle(hooks: [bool; 3], options: [bool; 3]) -> Lifecycle {
    let [mark, hold_traffic, proceeds] = options;
    let one = |is: bool, name, mark| is.then(|| Hook { hold_traffic, proceeds, ..hook(name, mark) });
    Lifecycle {
        pre_normal: one(hooks[0], NEW, false),
        in_place_update: one(hooks[1], IN_PLACE, mark),
        pre_delete: one(hooks[2], DELETE, mark),
    }
}

/// Two templates whose numbers differ by a multiple of three differ in an image only.
fn is_in_place(one: u32, other: u32) -> bool {
    one % 3 == other % 3
}

impl Model {
    pub(crate) fn new(spec: SetSpec, batches: u8, operations: bool) -> Self {
        let set = StoredSet { spec, template: 0, batches, operations };
        let (pods, seen) = (BTreeMap::new(), BTreeMap::new());
        Self { seen_set: set.clone(), set, pods, seen, next: 0, blind: false }
    }

    /// The controller sees a pod as it is stored.
    pub(crate) fn deliver(&mut self, index: usize) {
        let names: BTreeSet<String> = self.pods.keys().chain(self.seen.keys()).cloned().collect();
        let Some(name) = names.iter().nth(index % names.len().max(1)) else { return };
        match self.pods.get(name) {
            Some(pod) => self.seen.insert(name.clone(), pod.clone()),
            None => self.seen.remove(name),
        };
        self.blind = self.seen.keys().any(|name| !self.pods.contains_key(name));
    }

    pub(crate) fn deliver_set(&mut self) {
        self.seen_set = self.set.clone();
    }

    /// The controller sees everything, as after a restart or a lost watch.
    pub(crate) fn relist(&mut self) {
        (self.seen, self.seen_set, self.blind) = (self.pods.clone(), self.set.clone(), false);
    }

    /// Changes a pod that is stored.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut StoredPod)) {
        let count = self.pods.len().max(1);
        if let Some(stored) = self.pods.values_mut().nth(index % count) {
            let before = stored.clone();
            change(stored);
            if *stored != before {
                stored.version += 1;
            }
        }
    }

    /// The deadline of the hook passes for which the pod waits.
    pub(crate) fn expire(&mut self, index: usize) {
        self.change(index, |stored| {
            let waits = !matches!(stored.pod.state, None | Some(State::Normal | State::Updating));
            stored.pod.past_deadline |= waits;
        });
    }

    /// The operator of the hooks does what it is asked for.
    pub(crate) fn operate(&mut self, index: usize) {
        self.change(index, |stored| {
            let pod = &mut stored.pod;
            match pod.state {
                Some(State::PreparingNormal | State::Updated) => mark(pod, &MARKERS),
                Some(State::PreparingUpdate) => drop(pod.labels.remove(IN_PLACE)),
                Some(State::PreparingDelete) => drop(pod.labels.remove(DELETE)),
                _ => {}
            }
        });
    }

    /// Podward goes on with the operation of the pod.
    pub(crate) fn permit(&mut self, index: usize) {
        self.change(index, |stored| {
            stored.pod.operation = match stored.pod.operation {
                Operation::Begun => Operation::Granted,
                // The pod is put back into service when it is Ready.
                Operation::Finished if stored.pod.ready => Operation::None,
                other => other,
            };
            stored.pod.awaits_service &= !stored.pod.ready;
        });
    }

    /// Another writer cancels the operation of the pod, or finishes it.
    pub(crate) fn end_operation(&mut self, index: usize, is_finished: bool) {
        self.change(index, |stored| {
            stored.pod.operation = match stored.pod.operation {
                Operation::Granted if is_finished => Operation::Finished,
                Operation::Begun | Operation::Granted => Operation::None,
                other => other,
            };
        });
    }

    /// The scheduler and the kubelet go on with the pod.
    pub(crate) fn run(&mut self, index: usize) {
        self.change(index, |stored| {
            if stored.running {
                (stored.running, stored.batches) = (false, stored.batches.saturating_sub(1));
            }
            let pod = &mut stored.pod;
            if !pod.scheduled {
                pod.scheduled = true;
                return;
            }
            let has_keys = pod.not_ready != Some(NotReadyKeys::default());
            let offline = matches!(pod.operation, Operation::Granted);
            pod.pending = false;
            pod.ready = pod.update_ready == Some(true) && !has_keys && !offline && !stored.running;
            pod.ready_long_enough = pod.ready;
        });
    }

    pub(crate) fn specify(&mut self, index: usize, delete: bool) {
        self.change(index, |stored| stored.pod.specified_delete = delete);
    }

    pub(crate) fn delete_foreign(&mut self, index: usize) {
        let count = self.pods.len().max(1);
        if let Some(name) = self.pods.keys().nth(index % count).cloned() {
            self.pods.remove(&name);
            self.blind = true;
        }
    }

    fn view(&self, stored: &StoredPod, set: &StoredSet) -> SetPod {
        let revision = match stored.template == set.template {
            true => PodRevision::Update,
            false => PodRevision::Other { in_place: is_in_place(stored.template, set.template) },
        };
        let progress = match (stored.running, stored.batches) {
            (true, _) => UpdateProgress::Running,
            (false, 0) => UpdateProgress::Done,
            (false, _) => UpdateProgress::NextBatch,
        };
        SetPod { revision, progress, ..stored.pod.clone() }
    }

    pub(crate) fn seen_pods(&self) -> Vec<SetPod> {
        self.seen.values().map(|pod| self.view(pod, &self.seen_set)).collect()
    }

    pub(crate) fn stored_pods(&self) -> Vec<SetPod> {
        self.pods.values().map(|pod| self.view(pod, &self.set)).collect()
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.seen_set.spec, &self.seen_pods())
    }

    /// The controller plans, and makes the first `writes` writes of its plan.
    pub(crate) fn reconcile(&mut self, writes: usize) {
        let (pods, found) = (self.seen_pods(), self.plan());
        let mut left = writes;
        let leaves = |step: &&PodStep| step.delete || step.state == Some(State::PreparingDelete);
        let leaving: BTreeSet<&str> =
            found.steps.iter().filter(leaves).map(|step| &*pods[step.pod].name).collect();
        for step in &found.steps {
            let before = &pods[step.pod];
            for part in parts(step) {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.write(before, &part, &leaving);
            }
        }
        // The model has no old revision that it could create without an old pod.
        let counts = [(found.create.update, true), (found.create.current, false)];
        for (count, updated) in counts {
            for _ in 0..count {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.create(updated);
                if updated {
                    self.check_partition(&leaving);
                }
            }
        }
    }

    fn create(&mut self, updated: bool) {
        let old = self.seen.values().map(|pod| pod.template).filter(|it| *it != self.seen_set.template).max();
        let template = if updated { self.seen_set.template } else { old.unwrap_or(self.seen_set.template) };
        self.next += 1;
        let name = format!("pod-{:04}", self.next);
        let pod = SetPod {
            name: name.clone(),
            state: Some(State::PreparingNormal),
            previous: None,
            unconfirmed: false,
            rearmed: None,
            past_deadline: false,
            delete_hold: None,
            awaits_service: self.seen_set.operations,
            revision: PodRevision::Update,
            progress: UpdateProgress::Done,
            // The template has the markers of pods in use.
            labels: [IN_PLACE, DELETE].map(|key| (key.to_owned(), "true".to_owned())).into(),
            finalizers: Vec::new(),
            scheduled: false,
            pending: true,
            ready: false,
            ready_long_enough: false,
            update_ready: None,
            has_update_gate: true,
            not_ready: None,
            has_not_ready_gate: true,
            specified_delete: false,
            deletion_requested: false,
            deletion_sent: false,
            busy: false,
            operation: if self.seen_set.operations { Operation::None } else { Operation::NotNeeded },
            update_rank: 0,
            deletion_cost: 0,
            spread_rank: 0,
            ready_since: 0,
            created: self.next,
            restarts: 0,
        };
        let stored = StoredPod { version: 0, template, batches: 0, running: false, pod };
        self.pods.insert(name.clone(), stored.clone());
        self.seen.insert(name, stored);
        let spec = &self.seen_set.spec;
        let counts =
            |stored: &&StoredPod| !(spec.exclude_preparing_delete && stored.pod.is_preparing_delete());
        let most = spec.replicas + spec.max_surge();
        if !self.blind {
            let count = self.pods.values().filter(counts).count();
            assert!(count <= most as usize, "{count} pods of {most}");
        }
    }

    /// Makes a write of a step, unless the pod was changed since the controller saw it. `leaving` are the pods that the same
    /// plan deletes, or asks their hook to release for it.
    fn write(&mut self, before: &SetPod, step: &PodStep, leaving: &BTreeSet<&str>) {
        let spec = self.seen_set.spec.clone();
        let Some(seen) = self.seen.get(&before.name) else { return };
        let Some(stored) = self.pods.get(&before.name) else { return };
        if stored.version != seen.version {
            return;
        }
        let was_available = stored.pod.is_available();
        let hooks = spec.lifecycle.clone().unwrap_or_default();
        let holds = |hook: &Option<Hook>| {
            let goes_on = |hook: &Hook| hook.proceeds && stored.pod.past_deadline;
            hook.as_ref().is_some_and(|hook| hook.holds(&stored.pod) && !goes_on(hook))
        };
        if step.delete {
            assert!(!holds(&hooks.pre_delete), "{before:?} is deleted, and its hook has not released it");
            self.pods.remove(&before.name);
            self.seen.remove(&before.name);
        } else {
            if step.update && before.state != Some(State::Updating) {
                assert!(
                    !holds(&hooks.in_place_update),
                    "{before:?} is changed, and its hook has not released it"
                );
            }
            if step.update || step.next_batch {
                assert!(
                    matches!(stored.pod.operation, Operation::NotNeeded | Operation::Granted),
                    "{before:?} is changed without its operation"
                );
            }
            let updated = StoredPod { version: stored.version + 1, ..applied(stored, step, &self.seen_set) };
            if let Some(state) = step.state {
                assert!(follows(before, step, state, &hooks), "{step:?} of {before:?}");
            }
            self.pods.insert(before.name.clone(), updated.clone());
            self.seen.insert(before.name.clone(), updated);
        }
        let is_available = self.pods.get(&before.name).is_some_and(|stored| stored.pod.is_available());
        if was_available && !is_available && !self.blind {
            let available = self.pods.values().filter(|stored| stored.pod.is_available()).count();
            let least = spec.replicas.saturating_sub(spec.max_unavailable());
            assert!(
                available >= least as usize,
                "{available} of {least} available after {step:?} of {before:?}"
            );
        }
        if step.update && !before.is_updated() {
            self.check_partition(leaving);
        }
    }

    /// No more pods have the new revision than the partition leaves, those that were created included.
    fn check_partition(&self, leaving: &BTreeSet<&str>) {
        let spec = &self.seen_set.spec;
        // The controller may not have seen yet that a deletion was requested, or cancelled.
        let is_specified = |pod: &SetPod| {
            pod.specified_delete || self.seen.get(&pod.name).is_some_and(|it| it.pod.specified_delete)
        };
        let leaves =
            |pod: &SetPod| pod.is_preparing_delete() || is_specified(pod) || leaving.contains(&*pod.name);
        let is_new = |it: &&StoredPod| it.template == self.seen_set.template && !leaves(&it.pod);
        let new = self.pods.values().filter(is_new).count();
        let most = spec.replicas - spec.partition();
        assert!(self.blind || new <= most as usize, "{new} pods have the new revision, {most} may");
    }
}

pub(crate) fn spec(replicas: u32) -> SetSpec {
    SetSpec {
        replicas,
        update: UpdateKind::InPlaceIfPossible,
        paused: false,
        partition: Amount::Count(0),
        scatter: Vec::new(),
        max_unavailable: Amount::Count(1),
        max_surge: Amount::Count(0),
        scale_max_unavailable: None,
        pods_to_delete: BTreeSet::new(),
        exclude_preparing_delete: false,
        lifecycle: None,
        delete_hold: None,
    }
}
