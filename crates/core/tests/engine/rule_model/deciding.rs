//! What leaders decide, and what becomes of it; that no budget is overdrawn.

use super::*;

impl Model {
    fn settled(&self, number: usize, new_grants: &[Grants]) -> RuleSettlement {
        let leader = &self.leaders[number];
        let me = self.name(number);
        let known: Vec<(usize, &StoredRule)> = leader
            .rules
            .iter()
            .enumerate()
            .filter_map(|(place, rule)| Some((place, rule.as_ref()?)))
            .collect();
        let sets: Vec<RuleBudget<'_>> = known
            .iter()
            .zip(new_grants)
            .map(|((place, rule), stored_grants)| RuleBudget {
                set: &rule.set,
                stored_grants,
                missing: 0,
                is_current: stored_grants.holder() == me || leader.read_after[*place] == rule.version,
            })
            .collect();
        let asked: Vec<Vec<CheckRequest>> =
            leader.pods.iter().map(|pod| check_requests(&pod.labels)).collect();
        let places: Vec<Vec<usize>> = leader
            .pods
            .iter()
            .map(|pod| (0..known.len()).filter(|set| known[*set].1.set.selects(&pod.labels)).collect())
            .collect();
        let members: Vec<RuleMember<'_>> = leader
            .pods
            .iter()
            .enumerate()
            .map(|(pod, stored)| RuleMember {
                pod: subject(pod, stored),
                check_requests: &asked[pod],
                sets: &places[pod],
                ends_workload: false,
            })
            .collect();
        let others = |pod: &RulePod<'_>, _: &CheckRequest| match leader.has_heard {
            false => OtherChecks::Unknown,
            true if self.objects[NAMES.iter().position(|name| *name == pod.name).unwrap()] => {
                OtherChecks::Refuse
            }
            true => OtherChecks::Agree,
        };
        settle(&me, &sets, &members, &NoWebhookAnswers, &others)
    }

    /// A leader decides on what it knows, and sends what comes of it.
    pub(super) fn decide(&mut self, number: usize) -> Result<(), TestCaseError> {
        let known: Vec<usize> =
            (0..RULES).filter(|rule| self.leaders[number].rules[*rule].is_some()).collect();
        let held = |rule: &usize| self.leaders[number].rules[*rule].clone().unwrap();
        let before: Vec<Grants> = known.iter().map(|rule| held(rule).stored_grants).collect();
        let settlement = self.settled(number, &before);
        let after: Vec<Grants> = before
            .iter()
            .zip(&settlement.new_grants)
            .map(|(before, after)| after.clone().unwrap_or_else(|| before.clone()))
            .collect();
        let again = self.settled(number, &after);
        prop_assert!(again.new_grants.iter().all(Option::is_none), "not idempotent: {:?}", again.new_grants);
        prop_assert_eq!(&again.rooms, &settlement.rooms);
        for (rule, stored_grants) in known.iter().zip(settlement.new_grants) {
            if let Some(stored_grants) = stored_grants {
                let StoredRule { version: seen, incarnation, .. } = held(rule);
                self.in_flight
                    .push((number, Write::Ledger { rule: *rule, seen, incarnation, stored_grants }));
            }
        }
        for (pod, _) in settlement.renew {
            let stored = &self.leaders[number].pods[pod];
            let mut changes = LabelChanges::default();
            changes.set.insert(Stage::PreCheck.key("a"), self.clock.to_string());
            self.in_flight
                .push((number, Write::Pod { pod, seen: stored.version, changes, known: Vec::new() }));
        }
        Ok(())
    }

    /// Something that was sent arrives: it is stored, or refused because something else arrived before.
    pub(super) fn land(&mut self, number: usize) -> Result<(), TestCaseError> {
        let (leader, write) = self.in_flight.remove(number);
        match write {
            Write::Ledger { rule, seen, incarnation, stored_grants } => {
                let Some(stored) = &mut self.rules[rule] else { return Ok(()) };
                if stored.version != seen || stored.incarnation != incarnation {
                    return Ok(());
                }
                self.version += 1;
                let new: Vec<_> = stored_grants
                    .grants()
                    .iter()
                    .filter(|grant| !stored.stored_grants.grants().contains(grant))
                    .cloned()
                    .collect();
                (stored.version, stored.stored_grants) = (self.version, stored_grants);
                self.leaders[leader].rules[rule] = Some(stored.clone());
                let RuleCheck::Available(policy) = &stored.set.rules[0].check else { panic!() };
                let most = policy.most_unavailable(PODS as u32) as usize;
                self.granted += new.len();
                for grant in &new {
                    self.out[rule].insert(grant.uid.clone(), grant.check_request().unwrap());
                }
                self.forget_pods_in_service();
                let out = self.out[rule].len();
                prop_assert!(
                    new.is_empty() || out <= most,
                    "{out} of rule {rule} are out, and {most} may be"
                );
            }
            Write::Pod { pod, seen, changes, known } => {
                let stored = &self.pods[pod];
                if stored.version != seen {
                    // As the controller does: it reads the pod, and looks at it again with what it knows of rules.
                    let (version, read) = (stored.version, stored.clone());
                    if self.leaders[leader].pods[pod].version < version {
                        self.leaders[leader].pods[pod] = read;
                    }
                    self.look(leader, pod);
                    return Ok(());
                }
                let (before, uid) = (stored.labels.clone(), stored.uid.clone());
                let mut labels = before.clone();
                changes.apply(&mut labels);
                self.store_pod(pod, labels);
                self.leaders[leader].pods[pod] = self.pods[pod].clone();
                let leaves = |labels: &Labels| !labels.contains_key(SERVICE_AVAILABLE);
                if leaves(&before) || !leaves(&self.pods[pod].labels) {
                    return Ok(());
                }
                let check_request = check_requests(&before).remove(0);
                for (rule, stored) in self.rules.iter().enumerate() {
                    let Some(stored) = stored.as_ref().filter(|stored| stored.set.selects(&before)) else {
                        continue;
                    };
                    let was_known = known.get(rule) == Some(&Some(stored.incarnation));
                    prop_assert!(
                        !was_known || stored.stored_grants.has(&uid, &check_request),
                        "{} left service, and rule {rule} has no grant for it: {:?}",
                        NAMES[pod],
                        stored.stored_grants
                    );
                }
            }
        }
        Ok(())
    }
}
