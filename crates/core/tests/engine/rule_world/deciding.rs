//! What leaders decide, and what becomes of it; that no budget is overdrawn.

use super::*;

impl World {
    fn settled(&self, number: usize, ledgers: &[Ledger]) -> Settlement {
        let leader = &self.leaders[number];
        let me = self.name(number);
        let known: Vec<(usize, &StoredRule)> = leader
            .rules
            .iter()
            .enumerate()
            .filter_map(|(place, rule)| Some((place, rule.as_ref()?)))
            .collect();
        let sets: Vec<Budget<'_>> = known
            .iter()
            .zip(ledgers)
            .map(|((place, rule), ledger)| Budget {
                set: &rule.set,
                ledger,
                missing: 0,
                is_current: ledger.holder() == me || leader.read_after[*place] == rule.version,
            })
            .collect();
        let asked: Vec<Vec<Asking>> = leader.pods.iter().map(|pod| askings(&pod.labels)).collect();
        let places: Vec<Vec<usize>> = leader
            .pods
            .iter()
            .map(|pod| (0..known.len()).filter(|set| known[*set].1.set.selects(&pod.labels)).collect())
            .collect();
        let members: Vec<Member<'_>> = leader
            .pods
            .iter()
            .enumerate()
            .map(|(pod, stored)| Member {
                pod: subject(pod, stored),
                askings: &asked[pod],
                sets: &places[pod],
            })
            .collect();
        let others = |pod: &Subject<'_>, _: &Asking| match leader.has_heard {
            false => Others::Unheard,
            true if self.objects[NAMES.iter().position(|name| *name == pod.name).unwrap()] => Others::Refuse,
            true => Others::Agree,
        };
        settle(&me, &sets, &members, &NoAnswers, &others)
    }

    /// A leader decides on what it knows, and sends what comes of it.
    pub(super) fn decide(&mut self, number: usize) -> Result<(), TestCaseError> {
        let known: Vec<usize> =
            (0..RULES).filter(|rule| self.leaders[number].rules[*rule].is_some()).collect();
        let held = |rule: &usize| self.leaders[number].rules[*rule].clone().unwrap();
        let before: Vec<Ledger> = known.iter().map(|rule| held(rule).ledger).collect();
        let settlement = self.settled(number, &before);
        let after: Vec<Ledger> = before
            .iter()
            .zip(&settlement.ledgers)
            .map(|(before, after)| after.clone().unwrap_or_else(|| before.clone()))
            .collect();
        let again = self.settled(number, &after);
        prop_assert!(again.ledgers.iter().all(Option::is_none), "not idempotent: {:?}", again.ledgers);
        prop_assert_eq!(&again.rooms, &settlement.rooms);
        for (rule, ledger) in known.iter().zip(settlement.ledgers) {
            if let Some(ledger) = ledger {
                let StoredRule { version: seen, incarnation, .. } = held(rule);
                self.in_flight.push((number, Write::Ledger { rule: *rule, seen, incarnation, ledger }));
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
            Write::Ledger { rule, seen, incarnation, ledger } => {
                let Some(stored) = &mut self.rules[rule] else { return Ok(()) };
                if stored.version != seen || stored.incarnation != incarnation {
                    return Ok(());
                }
                self.version += 1;
                let new: Vec<_> = ledger
                    .grants()
                    .iter()
                    .filter(|grant| !stored.ledger.grants().contains(grant))
                    .cloned()
                    .collect();
                (stored.version, stored.ledger) = (self.version, ledger);
                self.leaders[leader].rules[rule] = Some(stored.clone());
                let Check::Available(policy) = &stored.set.rules[0].check else { panic!() };
                let most = policy.most_unavailable(PODS as u32) as usize;
                self.granted += new.len();
                for grant in &new {
                    self.out[rule].insert(grant.uid.clone(), grant.asking().unwrap());
                }
                self.forget_who_is_back();
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
                let asking = askings(&before).remove(0);
                for (rule, stored) in self.rules.iter().enumerate() {
                    let Some(stored) = stored.as_ref().filter(|stored| stored.set.selects(&before)) else {
                        continue;
                    };
                    let was_known = known.get(rule) == Some(&Some(stored.incarnation));
                    prop_assert!(
                        !was_known || stored.ledger.has(&uid, &asking),
                        "{} left service, and rule {rule} has no grant for it: {:?}",
                        NAMES[pod],
                        stored.ledger
                    );
                }
            }
        }
        Ok(())
    }
}
