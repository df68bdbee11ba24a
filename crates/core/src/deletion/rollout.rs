//! The number of pods that a Deployment keeps in service during a rollout.
//!
//! The Deployment controller counts a pod as available until it terminates or is not Ready. A pod whose delete is held
//! still counts. Usually the controller then waits (`cleanupUnhealthyReplicas` treats more available pods than wanted
//! as an error). But when the pod belongs to the ReplicaSet that is to have all pods, as after a rollback, the
//! controller scales the others in further than `maxUnavailable` allows (`reconcileOldReplicaSets`, both in
//! kubernetes/pkg/controller/deployment/rolling.go). The replica counts are right in the end, but not yet. So a pod
//! leaves service only when enough others are in service.

use std::collections::BTreeSet;

/// A pod of any ReplicaSet of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPod {
    /// The UID.
    pub uid: String,
    /// True if the pod is available and not leaving service.
    pub in_service: bool,
    /// True if its deletion is requested.
    pub requested: bool,
}

/// The count of a Deployment's pods in service. A new leader counts again from the labels of the pods.
#[derive(Clone, Debug, Default)]
pub struct Rollout {
    at_least: usize,
    staying: BTreeSet<String>,
    /// The pods that may leave. Their labels may not show it yet.
    allowed: BTreeSet<String>,
}

impl Rollout {
    /// Updates the count with the present pods and the number that must stay in service.
    pub fn count(&mut self, at_least: usize, pods: &[RolloutPod]) {
        let requested: BTreeSet<&str> =
            pods.iter().filter(|pod| pod.requested).map(|pod| pod.uid.as_str()).collect();
        // A pod whose request was withdrawn stays.
        self.allowed.retain(|uid| requested.contains(uid.as_str()));
        let stays = |pod: &&RolloutPod| pod.in_service && !self.allowed.contains(&pod.uid);
        self.staying = pods.iter().filter(stays).map(|pod| pod.uid.clone()).collect();
        self.at_least = at_least;
    }

    /// Allows the pod `uid` to leave service if enough pods are in service without it, or if it is not in service.
    ///
    /// ```
    /// use podward_core::deletion::{Rollout, RolloutPod};
    ///
    /// let pod = |uid: &str| RolloutPod { uid: uid.to_owned(), in_service: true, requested: true };
    /// let mut rollout = Rollout::default();
    /// rollout.count(2, &[pod("a"), pod("b"), pod("c")]);
    /// assert_eq!(rollout.leave("a"), Ok(()));
    /// assert!(rollout.leave("b").is_err(), "b and c have to stay");
    /// ```
    ///
    /// # Errors
    /// Fails with the reason for which the pod has to wait.
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

    fn pod(uid: &str, in_service: bool, requested: bool) -> RolloutPod {
        RolloutPod { uid: uid.to_owned(), in_service, requested }
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
    fn one_that_was_allowed_to_leave_counts_as_gone_until_its_request_is_taken_back() {
        let (a, b, c) = (pod("a", true, true), pod("b", true, true), pod("c", true, false));
        let mut rollout = Rollout::default();
        rollout.count(2, &[a.clone(), b.clone(), c.clone()]);
        assert_eq!(rollout.leave("a"), Ok(()));
        rollout.count(2, &[a.clone(), b.clone(), c.clone()]);
        assert_eq!(rollout.leave("a"), Ok(()), "it may still");
        assert!(rollout.leave("b").is_err());
        rollout.count(2, &[RolloutPod { requested: false, ..a }, b, c]);
        assert_eq!(rollout.leave("b"), Ok(()));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Asked(usize),
        /// The labels show all pods that may leave.
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
            let mut pods: Vec<RolloutPod> =
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
