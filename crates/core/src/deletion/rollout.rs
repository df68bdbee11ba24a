//! What a Deployment keeps in service while it rolls out.
//!
//! The Deployment controller counts a pod as available until it is terminating or not Ready. A pod whose delete is held is neither, so
//! it counts as one that stays. Mostly the controller then waits (`cleanupUnhealthyReplicas` takes more available pods than wanted for
//! an error); but when the pod is of the ReplicaSet that is to have all pods, as after a rollback, the controller scales the others in
//! further than `maxUnavailable` allows (`reconcileOldReplicaSets`, both in kubernetes/pkg/controller/deployment/rolling.go). What the
//! ReplicaSets then want is right in the end, but not yet: so a pod leaves service only when enough others are in it.

use std::collections::BTreeSet;

/// A pod of a Deployment, of whichever of its ReplicaSets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// UID.
    pub uid: String,
    /// Whether it is in service: available, and not on its way out.
    pub in_service: bool,
    /// Whether somebody wishes it gone.
    pub wished: bool,
}

/// A Deployment's count of pods in service. It may be lost: a new leader counts anew, by the labels of the pods.
#[derive(Clone, Debug, Default)]
pub struct Rollout {
    at_least: usize,
    staying: BTreeSet<String>,
    /// Allowed to leave; their labels may not say so yet.
    allowed: BTreeSet<String>,
}

impl Rollout {
    /// Takes in what the API server has now: all pods, and how many are to be in service at least.
    pub fn count(&mut self, at_least: usize, pods: &[Serving]) {
        let wished: BTreeSet<&str> =
            pods.iter().filter(|pod| pod.wished).map(|pod| pod.uid.as_str()).collect();
        // One whose wish was taken back stays.
        self.allowed.retain(|uid| wished.contains(uid.as_str()));
        let stays = |pod: &&Serving| pod.in_service && !self.allowed.contains(&pod.uid);
        self.staying = pods.iter().filter(stays).map(|pod| pod.uid.clone()).collect();
        self.at_least = at_least;
    }

    /// Lets the pod `uid` leave service if as many as there should be are in service without it, or if it isn't in service itself.
    ///
    /// ```
    /// use podward_core::deletion::{Rollout, Serving};
    ///
    /// let pod = |uid: &str| Serving { uid: uid.to_owned(), in_service: true, wished: true };
    /// let mut rollout = Rollout::default();
    /// rollout.count(2, &[pod("a"), pod("b"), pod("c")]);
    /// assert_eq!(rollout.leave("a"), Ok(()));
    /// assert!(rollout.leave("b").is_err(), "b and c have to stay");
    /// ```
    ///
    /// # Errors
    /// Why it has to wait, in words.
    pub fn leave(&mut self, uid: &str) -> Result<(), String> {
        let (at_least, staying) = (self.at_least, self.staying.len());
        if !self.staying.contains(uid) {
            return Ok(());
        }
        if staying <= at_least {
            return Err(format!(
                "its Deployment, which rolls out, is to have at least {at_least} pods in service, and has {staying} with this one"
            ));
        }
        self.staying.remove(uid);
        self.allowed.insert(uid.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(uid: &str, in_service: bool, wished: bool) -> Serving {
        Serving { uid: uid.to_owned(), in_service, wished }
    }

    #[test]
    fn what_is_not_in_service_goes() {
        let mut rollout = Rollout::default();
        rollout.count(2, &[pod("a", true, false), pod("b", true, true), pod("c", false, true)]);
        assert_eq!(rollout.leave("c"), Ok(()));
        assert!(
            rollout.leave("b").unwrap_err().contains("at least 2 pods in service, and has 2 with this one")
        );
    }

    #[test]
    fn one_that_was_allowed_to_leave_counts_as_gone_until_its_wish_is_taken_back() {
        let (a, b, c) = (pod("a", true, true), pod("b", true, true), pod("c", true, false));
        let mut rollout = Rollout::default();
        rollout.count(2, &[a.clone(), b.clone(), c.clone()]);
        assert_eq!(rollout.leave("a"), Ok(()));
        rollout.count(2, &[a.clone(), b.clone(), c.clone()]);
        assert_eq!(rollout.leave("a"), Ok(()), "it may still");
        assert!(rollout.leave("b").is_err());
        rollout.count(2, &[Serving { wished: false, ..a }, b, c]);
        assert_eq!(rollout.leave("b"), Ok(()));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Asked(usize),
        /// The labels of all that may leave say so.
        Written,
        Counted,
    }

    proptest! {
        #[test]
        fn never_fewer_than_promised_leave(
            at_least in 0_usize..6,
            in_service in prop::collection::vec(any::<bool>(), 1..8),
            events in prop::collection::vec(
                prop_oneof![(0_usize..8).prop_map(Event::Asked), Just(Event::Written), Just(Event::Counted)], 1..40,
            ),
        ) {
            let mut pods: Vec<Serving> =
                in_service.iter().enumerate().map(|(n, up)| pod(&n.to_string(), *up, true)).collect();
            let at_first = pods.iter().filter(|pod| pod.in_service).count();
            let mut left = BTreeSet::new();
            let mut rollout = Rollout::default();
            rollout.count(at_least, &pods);
            for event in events {
                match event {
                    Event::Asked(number) if number < pods.len() => {
                        if rollout.leave(&pods[number].uid).is_ok() {
                            left.insert(number);
                        }
                    }
                    Event::Asked(_) => {}
                    Event::Written => left.iter().for_each(|number| pods[*number].in_service = false),
                    Event::Counted => rollout.count(at_least, &pods),
                }
                let stay = in_service.iter().enumerate().filter(|(n, up)| **up && !left.contains(n)).count();
                prop_assert!(stay >= at_least.min(at_first));
            }
        }
    }
}
