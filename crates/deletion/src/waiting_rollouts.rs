//! The pods that wait until other pods of their Deployment are in service.

use std::collections::{BTreeMap, HashMap, VecDeque};

use kube::core::{Selector, SelectorExt};
use podward_kube_util::PodKey;

/// The number of pods that are reported when a pod has come into service. It lets one pod leave; the first ones may not
/// be able to leave any more. Pods that are not reported are reconciled after a time limit.
const WOKEN_AT_ONCE: usize = 8;

/// A Deployment whose pods wait.
#[derive(Clone, Debug)]
pub(crate) struct WaitingRollout {
    pub(crate) namespace: String,
    /// The UID of the Deployment.
    pub(crate) uid: String,
    /// Selects its pods.
    pub(crate) selector: Selector,
}

#[derive(Debug)]
struct WaitingPodsOfRollout {
    rollout: WaitingRollout,
    /// The next one to report comes first.
    pods: VecDeque<PodKey>,
}

/// The waiting pods, by Deployment.
#[derive(Debug, Default)]
pub(crate) struct WaitingRollouts {
    by_uid: HashMap<String, WaitingPodsOfRollout>,
    /// The Deployment of each waiting pod.
    uids: HashMap<PodKey, String>,
}

impl WaitingRollouts {
    /// Adds `pod`, which waits for other pods of `rollout`. A pod that waits already keeps its place.
    pub(crate) fn add(&mut self, pod: &PodKey, rollout: &WaitingRollout) {
        if self.uids.get(pod) == Some(&rollout.uid) {
            return;
        }
        self.remove(pod);
        self.uids.insert(pod.clone(), rollout.uid.clone());
        let new = || WaitingPodsOfRollout { rollout: rollout.clone(), pods: VecDeque::new() };
        self.by_uid.entry(rollout.uid.clone()).or_insert_with(new).pods.push_back(pod.clone());
    }

    /// Removes `pod`, which waits no longer.
    pub(crate) fn remove(&mut self, pod: &PodKey) {
        let Some(uid) = self.uids.remove(pod) else { return };
        let Some(waiting) = self.by_uid.get_mut(&uid) else { return };
        waiting.pods.retain(|waits| waits != pod);
        if waiting.pods.is_empty() {
            self.by_uid.remove(&uid);
        }
    }

    /// Returns the pods to report because a pod with `labels` has come into service in `namespace`. Each waiting pod is
    /// returned in turn.
    pub(crate) fn next(&mut self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<PodKey> {
        let mut woken = Vec::new();
        for WaitingPodsOfRollout { rollout, pods } in self.by_uid.values_mut() {
            if rollout.namespace == namespace && rollout.selector.matches(labels) {
                let count = pods.len().min(WOKEN_AT_ONCE);
                woken.extend(pods.iter().take(count).cloned());
                pods.rotate_left(count);
            }
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(name: &str) -> WaitingRollout {
        let selector = Selector::from_iter([("app".to_owned(), name.to_owned())]);
        WaitingRollout { namespace: "shop".to_owned(), uid: name.to_owned(), selector }
    }

    fn pod(name: &str) -> PodKey {
        PodKey { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    fn names(woken: &[PodKey]) -> Vec<&str> {
        woken.iter().map(|pod| pod.name.as_str()).collect()
    }

    #[test]
    fn a_pod_in_service_wakes_some_pods_of_its_own_deployment() {
        let mut waiting = WaitingRollouts::default();
        let of = |app: &str| BTreeMap::from([("app".to_owned(), app.to_owned())]);
        for number in 0..10 {
            waiting.add(&pod(&format!("web-{number}")), &rollout("web"));
        }
        waiting.add(&pod("db-0"), &rollout("db"));
        assert_eq!(names(&waiting.next("shop", &of("db"))), ["db-0"]);
        assert!(waiting.next("other", &of("web")).is_empty() && waiting.next("shop", &of("x")).is_empty());

        let first = waiting.next("shop", &of("web"));
        assert_eq!(names(&first), ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5", "web-6", "web-7"]);
        // The pods that were not woken come next, also when the others wait again.
        waiting.remove(&pod("web-0"));
        first.iter().skip(1).for_each(|pod| waiting.add(pod, &rollout("web")));
        assert_eq!(names(&waiting.next("shop", &of("web")))[..3], ["web-8", "web-9", "web-1"]);

        for number in 0..10 {
            waiting.remove(&pod(&format!("web-{number}")));
        }
        waiting.remove(&pod("db-0"));
        assert!(waiting.by_uid.is_empty() && waiting.uids.is_empty());
    }
}
