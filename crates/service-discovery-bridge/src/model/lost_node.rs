//! Pods whose node is lost, by their own conditions: the bridge does not read nodes.
//!
//! When a node does not report any more, the cluster sets the condition Ready of its pods to False, and leaves the others
//! as the kubelet wrote them. A kubelet that runs makes a pod Ready whose containers are ready and whose gates are True.

use std::time::Duration;

use jiff::Timestamp;

use super::bound_pod::{BoundPod, Demand};

impl BoundPod {
    /// Returns whether the node of the pod is lost at `now`: for `limit` it has not made the pod Ready.
    pub(crate) fn is_lost(&self, now: Timestamp, limit: Duration) -> bool {
        let is_silent = self.silent_since.is_some_and(|since| {
            Duration::try_from(now.duration_since(since)).is_ok_and(|silent| silent >= limit)
        });
        is_silent && matches!(self.demand, Demand::InService | Demand::NotReady | Demand::Lost)
    }

    /// Returns the pod, with the demand [`Lost`](Demand::Lost) if its node is lost.
    pub(crate) fn judged(self, now: Timestamp, limit: Duration) -> Self {
        match self.is_lost(now, limit) {
            true => Self { demand: Demand::Lost, ..self },
            false => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn demand(status: Value, seconds: i64) -> Demand {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"readinessGates": [{"conditionType": "example.com/gate"}]},
            "status": status,
        });
        let now = Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        BoundPod::new(serde_json::from_value(pod).unwrap()).judged(now, LIMIT).demand
    }

    fn condition(name: &str, status: &str, seconds: i64) -> Value {
        let at = Timestamp::from_second(1_800_000_000 + seconds).unwrap().to_string();
        json!({"type": name, "status": status, "lastTransitionTime": at})
    }

    #[test]
    fn a_pod_is_lost_when_only_ready_is_false_for_long() {
        let status = |ready: &str, containers: &str, gate: &str| {
            json!({"conditions": [
                condition("Ready", ready, 10), condition("ContainersReady", containers, 0),
                condition("example.com/gate", gate, 20),
            ]})
        };
        let silent = status("False", "True", "True");
        // The last change counts.
        assert_eq!(demand(silent.clone(), 79), Demand::NotReady);
        assert_eq!(demand(silent.clone(), 80), Demand::Lost);
        assert_eq!(demand(silent.clone(), -80), Demand::NotReady);
        assert_eq!(demand(status("Unknown", "True", "True"), 80), Demand::Lost);
        assert_eq!(demand(status("True", "True", "True"), 80), Demand::InService);
        assert_eq!(demand(status("False", "False", "True"), 80), Demand::NotReady);
        assert_eq!(demand(status("False", "True", "False"), 80), Demand::NotReady);
        let mut finished = silent.clone();
        finished["phase"] = json!("Failed");
        assert_eq!(demand(finished, 80), Demand::Gone);
        // Without a gate's condition, or without times, nothing follows.
        let mut unknown = silent;
        unknown["conditions"].as_array_mut().unwrap().pop();
        assert_eq!(demand(unknown, 80), Demand::NotReady);
    }
}
