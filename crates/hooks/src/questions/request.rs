//! The request to a hook.

use podward_core::UnixNanos;
use podward_core::hooks::{HookPhase, HookQuestion};
use podward_proto::v1;

use podward_kube_util::CachedPod;

/// Returns the request for `question` about `pod`.
pub(crate) fn build(pod: &CachedPod, question: &HookQuestion, attempt: u32) -> v1::HandleRequest {
    let operation =
        |(id, r#type): &(String, String)| v1::Operation { id: id.clone(), r#type: r#type.clone() };
    v1::HandleRequest {
        hook_name: question.hook.clone(),
        phase: phase(question.phase).into(),
        pod: Some(about(pod)),
        operations: question.operations.iter().map(operation).collect(),
        attempt,
        asked_at: Some(timestamp(question.since)),
        deadline: Some(timestamp(question.deadline)),
        question_id: question_id(pod.uid(), question),
    }
}

/// Returns the id of the question. It is the same in every process.
fn question_id(uid: &str, question: &HookQuestion) -> String {
    format!("{uid}/{}/{}/{}", question.hook, question.phase.as_str(), question.since.0)
}

fn about(pod: &CachedPod) -> v1::Pod {
    let key = pod.key();
    v1::Pod {
        namespace: key.namespace,
        name: key.name,
        uid: pod.uid().to_owned(),
        ips: pod.ips().map(str::to_owned).collect(),
        ports: pod
            .ports()
            .map(|port| v1::ContainerPort {
                name: port.name.clone(),
                port: u32::from(port.container_port),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            })
            .collect(),
        labels: pod.view().labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        node_name: pod.node_name().unwrap_or_default().to_owned(),
        never_ready: pod.was_never_ready(),
    }
}

fn timestamp(time: UnixNanos) -> prost_types::Timestamp {
    const SECOND: i64 = 1_000_000_000;
    prost_types::Timestamp {
        seconds: time.0.div_euclid(SECOND),
        nanos: i32::try_from(time.0.rem_euclid(SECOND)).unwrap_or_default(),
    }
}

const fn phase(phase: HookPhase) -> v1::Phase {
    match phase {
        HookPhase::PreCheck => v1::Phase::PreCheck,
        HookPhase::Prepare => v1::Phase::Prepare,
        HookPhase::PostCheck => v1::Phase::PostCheck,
        HookPhase::Complete => v1::Phase::Complete,
        HookPhase::Release => v1::Phase::Release,
    }
}

/// All phases.
pub(crate) const PHASES: [HookPhase; 5] =
    [HookPhase::PreCheck, HookPhase::Prepare, HookPhase::PostCheck, HookPhase::Complete, HookPhase::Release];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_contains_all_known_facts() {
        let pod: CachedPod = serde_json::from_value(json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 80}]}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }))
        .unwrap();
        let question = HookQuestion {
            hook: "lb".to_owned(),
            phase: HookPhase::Prepare,
            operations: vec![("op".to_owned(), "update".to_owned())],
            since: UnixNanos(1_500_000_000),
            deadline: UnixNanos(-1),
        };
        let request = build(&pod, &question, 3);
        assert_eq!(request.question_id, "u/lb/PREPARE/1500000000");
        assert_eq!(request.phase(), v1::Phase::Prepare);
        assert_eq!(request.attempt, 3);
        assert_eq!(request.asked_at, Some(prost_types::Timestamp { seconds: 1, nanos: 500_000_000 }));
        assert_eq!(request.deadline, Some(prost_types::Timestamp { seconds: -1, nanos: 999_999_999 }));
        assert_eq!(request.operations, [v1::Operation { id: "op".to_owned(), r#type: "update".to_owned() }]);
        let about = request.pod.unwrap();
        assert_eq!((about.ips.join(" ").as_str(), about.node_name.as_str()), ("10.0.0.1 fd00::1", "n1"));
        assert_eq!((about.ports[0].port, about.ports[0].protocol.as_str()), (80, "TCP"));
        assert_eq!(about.labels["app"], "web");
    }
}
