//! The moment for which the removal of a hook's finalizer waits for other consumers.
//!
//! Consumers drain a pod at the same time. While one of them holds the pod, it does not help to remove the finalizer of
//! another, but the write meets that of the first: the API server refuses one of the two, or applies it again with all
//! webhooks. So the finalizer is removed with what follows from the next change of the pod, at the latest after a moment.
//! While hundreds of pods leave service at the same time, it does not wait: each pod would be out of service for longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use podward_core::{PodPlan, PodView};
use podward_kube_util::PodKey;

/// How long the removal waits. A consumer that needs longer does not write at the same time.
const MOMENT: Duration = Duration::from_millis(100);

/// The pods from which finalizers are to be removed, and since when.
#[derive(Debug, Default)]
pub(crate) struct JointRemovals {
    since: Mutex<HashMap<PodKey, Instant>>,
}

impl JointRemovals {
    /// Returns how long the write of `plan` to `pod` waits at `now`. Returns `None` if it does not wait.
    pub(crate) fn wait(
        &self,
        pod: &PodKey,
        stored: &PodView<'_>,
        plan: &PodPlan,
        now: Instant,
    ) -> Option<Duration> {
        let mut since = self.since.lock();
        if !only_removes_some_finalizers(stored, plan) {
            since.remove(pod);
            return None;
        }
        let begun = *since.entry(pod.clone()).or_insert(now);
        MOMENT.checked_sub(now.saturating_duration_since(begun)).filter(|left| !left.is_zero())
    }

    /// Forgets the pods that do not exist any more.
    pub(crate) fn retain(&self, exists: impl Fn(&PodKey) -> bool) {
        self.since.lock().retain(|pod, _| exists(pod));
    }
}

/// Returns whether `plan` removes finalizers of consumers, moves no operation, asks no hook, and leaves the finalizer of
/// another consumer.
fn only_removes_some_finalizers(stored: &PodView<'_>, plan: &PodPlan) -> bool {
    let PodPlan { labels, gate, finalizers, open, .. } = plan;
    let is_left = |finalizer: &str| !finalizers.remove.iter().any(|removed| removed == finalizer);
    !finalizers.remove.is_empty()
        && finalizers.add.is_empty()
        && labels.is_empty()
        && gate.is_none()
        && open.is_empty()
        && stored.protection_finalizers().any(is_left)
}

#[cfg(test)]
mod tests {
    use podward_core::hooks::{DeadlinePolicy, HookPhase, HookQuestion};
    use podward_core::keys::PROT_FINALIZER_PREFIX;
    use podward_core::{ConditionStatus, FinalizerChanges, OpenHookQuestion, UnixNanos};
    use podward_kube_util::CachedPod;
    use serde_json::json;

    use super::*;

    fn pod(consumers: &[&str]) -> CachedPod {
        let finalizers: Vec<_> =
            consumers.iter().map(|name| format!("{PROT_FINALIZER_PREFIX}/{name}")).collect();
        let metadata = json!({"name": "web-0", "namespace": "shop", "uid": "u", "finalizers": finalizers});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn removal(consumers: &[&str]) -> PodPlan {
        let remove = consumers.iter().map(|name| format!("{PROT_FINALIZER_PREFIX}/{name}")).collect();
        let mut plan = PodPlan::default();
        plan.finalizers = FinalizerChanges { add: Vec::new(), remove };
        plan
    }

    #[test]
    fn a_removal_waits_a_moment_for_other_consumers() {
        let (joint, begun) = (JointRemovals::default(), Instant::now());
        let wait = |consumers: &[&str], plan: &PodPlan, after: Duration| {
            let pod = pod(consumers);
            joint.wait(&pod.key(), &pod.view(), plan, begun + after)
        };
        let (early, late) = (MOMENT / 4, MOMENT * 2);
        let removed = removal(&["hook"]);
        assert_eq!(wait(&["hook", "balancer"], &removed, Duration::ZERO), Some(MOMENT));
        assert_eq!(wait(&["hook", "balancer"], &removed, early), Some(MOMENT - early));
        assert_eq!(
            wait(&["hook", "balancer"], &removed, MOMENT),
            None,
            "it does not wait for a slow consumer"
        );
        assert_eq!(wait(&["balancer"], &PodPlan::default(), late), None);
        assert_eq!(wait(&["hook", "balancer"], &removed, late), Some(MOMENT), "another removal waits again");
        assert_eq!(wait(&["hook"], &removed, late + early), None, "nothing else holds the pod");
    }

    #[test]
    fn a_write_that_moves_an_operation_or_asks_a_hook_does_not_wait() {
        let (joint, pod) = (JointRemovals::default(), pod(&["hook", "balancer"]));
        let [mut gate, mut labels, mut asks] = [(); 3].map(|()| removal(&["hook"]));
        gate.gate = Some(ConditionStatus::False);
        labels.labels.remove.insert("x".to_owned());
        let question = HookQuestion {
            hook: "next".to_owned(),
            phase: HookPhase::Prepare,
            operations: Vec::new(),
            since: UnixNanos(1),
            deadline: UnixNanos(2),
        };
        let (policy, message) = (DeadlinePolicy::Hold, String::new());
        asks.open.push(OpenHookQuestion { question, policy, overdue: false, rejected: false, message });
        for plan in [gate, labels, asks, PodPlan::default()] {
            assert_eq!(joint.wait(&pod.key(), &pod.view(), &plan, Instant::now()), None);
        }
        joint.retain(|_| false);
        assert!(joint.since.lock().is_empty());
    }
}
