//! A question, as it is put to a hook.

use podward_core::UnixNanos;
use podward_core::hooks::{Phase, Question};
use podward_proto::v1;

use crate::cached_pod::CachedPod;

/// The request for `question` about `pod`.
pub(super) fn build(pod: &CachedPod, question: &Question, attempt: u32) -> v1::HandleRequest {
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

/// The same for every process that asks it: what names the question, one after the other.
fn question_id(uid: &str, question: &Question) -> String {
    format!("{uid}/{}/{}/{}", question.hook, name(question.phase), question.since.0)
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
    }
}

fn timestamp(time: UnixNanos) -> prost_types::Timestamp {
    const SECOND: i64 = 1_000_000_000;
    prost_types::Timestamp {
        seconds: time.0.div_euclid(SECOND),
        nanos: i32::try_from(time.0.rem_euclid(SECOND)).unwrap_or_default(),
    }
}

const fn phase(phase: Phase) -> v1::Phase {
    match phase {
        Phase::PreCheck => v1::Phase::PreCheck,
        Phase::Prepare => v1::Phase::Prepare,
        Phase::PostCheck => v1::Phase::PostCheck,
        Phase::Complete => v1::Phase::Complete,
        Phase::Release => v1::Phase::Release,
    }
}

/// The phase, in metrics and ids.
pub(super) const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::PreCheck => "PRE_CHECK",
        Phase::Prepare => "PREPARE",
        Phase::PostCheck => "POST_CHECK",
        Phase::Complete => "COMPLETE",
        Phase::Release => "RELEASE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_says_all_that_is_known() {
        let pod: CachedPod = serde_json::from_value(json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "http", "containerPort": 80}]}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }))
        .unwrap();
        let question = Question {
            hook: "lb".to_owned(),
            phase: Phase::Prepare,
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
