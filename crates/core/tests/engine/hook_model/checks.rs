//! What must hold whenever the controller has written, and at rest.

use super::*;

impl Model {
    /// That `plan` made of `old` what may be made of it.
    pub(super) fn check_hooks(&mut self, old: &Stored, new: &Stored, plan: &PodPlan) {
        let now = plan.now;
        let others = |pod: &Stored| -> Vec<String> {
            pod.finalizers.iter().filter(|name| !is_hook_finalizer(name)).cloned().collect()
        };
        assert_eq!(others(old), others(new), "finalizers of others were touched");
        assert_eq!(foreign_entries(old), foreign_entries(new), "expectations of others were touched");
        assert!(
            !new.terminating || plan.finalizers.add.is_empty(),
            "a terminating pod can't be given finalizers"
        );
        // Of hooks that are gone nothing is left, so nothing is known of where they stand.
        let removed = &plan.finalizers.remove;
        self.hooks.sides.retain(|name, _| !removed.contains(&hook_finalizer(name)));
        let matching = self.hooks.matching(&new.labels);
        let registered = self.hooks.registered.clone();
        let holders: Vec<&Arc<Hook>> = matching.iter().filter(|hook| hook.is_consumer()).collect();
        for hook in registered.values() {
            let finalizer = hook_finalizer(&hook.name);
            let asked_in = |phase| hook.takes_part_in(phase);
            let is_holder =
                holders.iter().any(|holder| holder.name == hook.name) && !new.terminating && !new.finished;
            if plan.finalizers.remove.contains(&finalizer) {
                let gone = [HookPhase::Prepare, HookPhase::Release];
                let why = self.hooks.has_done(&hook.name, &gone)
                    || self.hooks.may_proceed(hook, &gone, now)
                    || (!is_holder && !asked_in(HookPhase::Release))
                    || (is_holder
                        && !asked_in(HookPhase::Prepare)
                        && new.gate != Some(ConditionStatus::True));
                assert!(why, "{} was made to let go: {hook:?} {old:?} -> {new:?}", hook.name);
                self.hooks.sides.insert(hook.name.clone(), Side::Out);
            }
            if is_holder
                && !asked_in(HookPhase::Complete)
                && !new.holds_gate()
                && new.finalizers.contains(&finalizer)
            {
                // It takes pods in without being asked.
                self.hooks.sides.insert(hook.name.clone(), Side::In);
            }
            if plan.finalizers.add.contains(&finalizer) {
                let is_asked_to_forget = plan
                    .open
                    .iter()
                    .any(|open| open.question.hook == hook.name && open.question.phase == HookPhase::Release);
                if is_asked_to_forget && !is_holder {
                    // It may be adding a pod that is not its own any more.
                    continue;
                }
                assert!(is_holder, "{} doesn't hold pods like this one", hook.name);
                let is_in = self.hooks.has_done(&hook.name, &[HookPhase::Complete])
                    || self.hooks.may_proceed(hook, &[HookPhase::Complete], now)
                    || !asked_in(HookPhase::Complete);
                assert!(
                    is_in || new.holds_gate(),
                    "{} was made to hold the pod: {old:?} -> {new:?}",
                    hook.name
                );
                if is_in && !new.holds_gate() {
                    self.hooks.sides.insert(hook.name.clone(), Side::In);
                }
            } else if is_holder
                && self.hooks.may_proceed(hook, &[HookPhase::Complete], now)
                && !new.holds_gate()
            {
                // It was in doubt, and has its finalizer already.
                self.hooks.sides.insert(hook.name.clone(), Side::In);
            }
        }
        self.check_sides(old, new, &holders);
        self.check_pre_checks(old, new, &matching, now);
    }

    /// What the whole thing is for.
    fn check_sides(&self, old: &Stored, new: &Stored, holders: &[&Arc<Hook>]) {
        let side = |hook: &Hook| self.hooks.side(&hook.name);
        let turned_on = new.gate == Some(ConditionStatus::True) && old.gate != new.gate;
        let available = |pod: &Stored| pod.labels.contains_key(keys::SERVICE_AVAILABLE);
        let became_available = available(new) && !available(old);
        for hook in holders.iter().filter(|hook| hook.takes_part_in(HookPhase::Complete)) {
            let before = hook.complete_timing == GateTiming::BeforeGate;
            if (turned_on && before) || became_available {
                assert_eq!(side(hook), Side::In, "in service without {}: {old:?} -> {new:?}", hook.name);
            }
        }
        let operate = |pod: &Stored| -> BTreeSet<String> {
            let operations = Operations::parse(&pod.labels);
            operations.iter().filter(|(_, op)| op.has(Stage::Operate)).map(|(id, _)| id.to_owned()).collect()
        };
        if !operate(new).is_subset(&operate(old)) {
            for hook in holders.iter().filter(|hook| hook.takes_part_in(HookPhase::Prepare)) {
                assert_eq!(
                    side(hook),
                    Side::Out,
                    "operated on while {} may send traffic: {old:?} -> {new:?}",
                    hook.name
                );
            }
        }
    }

    fn check_pre_checks(&self, old: &Stored, new: &Stored, matching: &[Arc<Hook>], now: UnixNanos) {
        for (id, operation) in Operations::parse(&new.labels).iter() {
            if !operation.has(Stage::PreChecked) || old.has(Stage::PreChecked, id) {
                continue;
            }
            for hook in matching.iter().filter(|hook| hook.takes_part_in(HookPhase::PreCheck)) {
                let agreed = self.hooks.has_done(&hook.name, &[HookPhase::PreCheck])
                    || self.hooks.may_proceed(hook, &[HookPhase::PreCheck], now);
                assert!(agreed, "{id} begins though {} was not heard: {old:?} -> {new:?}", hook.name);
            }
        }
    }

    /// Nothing of ours is on the pod but what belongs to the hooks that hold it, and all of that is.
    pub(crate) fn assert_held_by_exactly_its_hooks(&self) {
        let holders: Vec<String> = self
            .hooks
            .matching(&self.pod.labels)
            .iter()
            .filter(|hook| hook.is_consumer())
            .map(|hook| hook.name.clone())
            .collect();
        let mut held: Vec<&String> =
            self.pod.finalizers.iter().filter(|name| is_hook_finalizer(name)).collect();
        held.sort();
        let finalizers: BTreeSet<String> = holders.iter().map(|name| hook_finalizer(name)).collect();
        assert_eq!(held, finalizers.iter().collect::<Vec<_>>(), "{:?}", self.pod);
        let expected =
            podward_core::with_consumers(self.pod.expected.as_deref(), holders.iter().map(String::as_str));
        assert_eq!(expected.unwrap(), None, "{:?}", self.pod);
        for text in [&self.pod.evidence, &self.pod.asked].into_iter().flatten() {
            let hooks: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap();
            for name in hooks.keys() {
                assert!(self.hooks.registered.contains_key(name), "{name} is gone: {text}");
            }
        }
    }

    /// Whose operators are told that a result is refused, and that such a result isn't accepted.
    pub(super) fn check_refusals(&self, old: &Stored, new: &Stored, now: UnixNanos) {
        if new.terminating {
            return;
        }
        assert_refused_are_judged(new);
        let told = ResultRefusals::parse(new.refused.as_deref());
        assert_eq!(told, ResultRefusals::of(&new.view()), "the record is of an operation that isn't refused");
        let before = ResultRefusals::of(&old.view());
        let matching = self.hooks.matching(&new.labels);
        for (id, operation) in Operations::parse(&new.labels).iter() {
            let names: Vec<&str> = told.of_operation(id).map(|refusal| refusal.by).collect();
            assert_eq!(operation.has(Stage::Rollback), !names.is_empty(), "{id}: {new:?}");
            let was = |by: &str| before.of_operation(id).any(|refusal| refusal.by == by);
            let tells = matching.iter().filter(|hook| {
                hook.takes_part_in(HookPhase::PostCheck)
                    && hook.post_check_rejection == PostCheckRejection::Rollback
                    && operation.known_type().is_some_and(|known| hook.checks_type(known))
            });
            // Who comes after others isn't heard before those agree, if they came later than his answer.
            let is_heard = |hook: &Hook| {
                matching.iter().filter(|other| other.order < hook.order).all(|other| {
                    !other.takes_part_in(HookPhase::PostCheck)
                        || operation.known_type().is_none_or(|known| !other.checks_type(known))
                        || self.hooks.has_done(&other.name, &[HookPhase::PostCheck])
                        || self.hooks.may_proceed(other, &[HookPhase::PostCheck], now)
                })
            };
            let (mut refusing, mut unheard): (Vec<String>, Vec<String>) = Default::default();
            for hook in tells {
                let by = Objection::name_of_hook(&hook.name);
                if was(&by) && !self.hooks.has_done(&hook.name, &[HookPhase::PostCheck]) {
                    refusing.push(by);
                } else if self.hooks.has_rejected(&hook.name, id) {
                    if is_heard(hook) { &mut refusing } else { &mut unheard }.push(by);
                }
            }
            for objection in self.checks.objections(id, "") {
                if objection.refuses() || was(&objection.by) {
                    refusing.push(objection.by);
                }
            }
            let is_founded = |by: &str| was(by) || refusing.iter().chain(&unheard).any(|other| other == by);
            assert!(names.iter().all(|by| is_founded(by)), "{id} is refused by nobody: {old:?} -> {new:?}");
            let is_accepted = operation.has_any(&[Stage::PostChecked, Stage::Completing]);
            if is_accepted && !old.has(Stage::PostChecked, id) && !old.has(Stage::Completing, id) {
                let nobody = refusing.is_empty() && unheard.is_empty();
                assert!(nobody, "{id} is accepted, refused by {refusing:?} {unheard:?}: {old:?} -> {new:?}");
            }
            if operation.awaits_judgement() {
                let is_told = |by: &String| names.contains(&by.as_str());
                assert!(refusing.iter().all(is_told), "{id}: {refusing:?} aren't told: {old:?} -> {new:?}");
            }
        }
        // What is over and done with was accepted.
        for (id, operation) in Operations::parse(&old.labels).iter() {
            if operation.has(Stage::Rollback)
                && !new.has(Stage::Rollback, id)
                && !new.has(Stage::Operating, id)
            {
                assert!(
                    !self.checks.refuses || old.has(Stage::UndoOperationType, id),
                    "{id} is over: {old:?} -> {new:?}"
                );
            }
        }
    }
}

fn foreign_entries(pod: &Stored) -> BTreeMap<String, serde_json::Value> {
    let text: serde_json::Value = pod
        .expected
        .as_deref()
        .map(|text| serde_json::from_str(text).unwrap_or_default())
        .unwrap_or_default();
    let entries = text["expectedFinalizers"].as_object().cloned().unwrap_or_default();
    entries.into_iter().filter(|(consumer, _)| !consumer.starts_with("LifecycleHook//")).collect()
}
