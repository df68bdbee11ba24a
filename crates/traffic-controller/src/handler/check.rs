//! PRE_CHECK: the other endpoints of the pod's Services, and the pods that are being drained.

use podward_core::UnixNanos;

use super::question::TrafficQuestion;
use crate::drain_tracker::DrainTracker;
use crate::index::{EndpointIndex, EndpointOwner};
use crate::verdict::{RemainingEndpoints, TrafficVerdict, WaitTimes, pre_check};

/// Returns the answer to PRE_CHECK at `now`. If the operation may start, the pod counts as draining in `drain_tracker`. The
/// `index` is locked until then: of two checks at the same moment, one has to see the other.
pub(super) fn check(
    index: &EndpointIndex,
    drain_tracker: &DrainTracker,
    question: &TrafficQuestion,
    wait_times: &WaitTimes,
    now: UnixNanos,
) -> TrafficVerdict {
    let pod = &question.pod;
    let start = drain_tracker.check_start(&question.id, question.asked_at, now);
    let is_draining = |owner: &EndpointOwner, is_ready| match owner {
        EndpointOwner::Pod(_, uid) => drain_tracker.is_draining(uid, is_ready, now),
        EndpointOwner::Address(..) => false,
    };
    let endpoints = index.pod_endpoints(pod);
    let ready = endpoints.services.iter().filter(|service| service.exists && service.ready.is_some());
    let services: Vec<RemainingEndpoints> = ready
        .map(|service| RemainingEndpoints {
            service: service.key.clone(),
            others: index.other_endpoints(&service.key, pod, is_draining),
        })
        .collect();
    let verdict = pre_check(&endpoints, &services, wait_times, start, now);
    if matches!(verdict, TrafficVerdict::Done(_)) {
        drain_tracker.mark_checked(&pod.uid, now);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podward_core::hooks::EvidenceLevel::{Assumed, Proven};
    use podward_core::hooks::HookPhase;
    use serde_json::json;

    use super::*;
    use crate::index::{ChangeOrigin, ObjectKey, ServiceObject, SliceObject, TargetPod};

    fn question(uid: &str) -> TrafficQuestion {
        let pod = TargetPod {
            namespace: "shop".into(),
            name: uid.to_owned(),
            uid: uid.into(),
            addresses: Vec::new(),
            ports: Vec::new(),
            labels: std::iter::once(("app".to_owned(), "web".to_owned())).collect(),
            node: "n1".to_owned(),
            never_ready: false,
        };
        TrafficQuestion {
            phase: HookPhase::PreCheck,
            pod,
            id: uid.to_owned(),
            asked_at: None,
            opted_out: false,
        }
    }

    #[test]
    fn a_pod_does_not_count_for_a_check_after_its_own() {
        let object = |spec| json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
        let service: ServiceObject =
            serde_json::from_value(object(json!({"selector": {"app": "web"}}))).unwrap();
        let endpoint = |uid: &str| json!({"addresses": ["10.0.0.1"], "targetRef": {"uid": uid}});
        let slice: SliceObject = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [endpoint("a"), endpoint("b")],
        }))
        .unwrap();
        let (mut index, key, now) = (EndpointIndex::default(), ObjectKey::new("shop", "web"), UnixNanos(1));
        index.put_service(&key, service.service(), ChangeOrigin::Watched, now);
        index.put_slice(key, slice.slice().unwrap(), ChangeOrigin::Watched, now);
        let tracker = DrainTracker::default();
        let second = Duration::from_secs(1);
        let wait_times = WaitTimes {
            propagation: second,
            quiet: second,
            connections: second,
            dns_ttl: second,
            surge: second,
        };
        let look = |uid| match check(&index, &tracker, &question(uid), &wait_times, now) {
            TrafficVerdict::Done(evidence) => evidence.level,
            TrafficVerdict::Pending { reason, .. } => panic!("waits: {reason}"),
        };
        // Nothing happens between the two answers.
        assert_eq!((look("a"), look("b")), (Proven, Assumed));
    }
}
