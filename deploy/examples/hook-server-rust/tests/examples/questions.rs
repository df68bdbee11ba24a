//! Questions of Podward.

use podward_proto::v1::{ContainerPort, HandleRequest, HandleResponse, Phase, Pod};

/// Returns a pod with an address and a port.
pub(crate) fn pod(number: u8) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: format!("web-{number}"),
        uid: format!("0b7e4c1e-0000-4000-8000-0000000000{number:02x}"),
        ips: vec![format!("10.9.8.{number}")],
        ports: vec![ContainerPort { name: "http".to_owned(), port: 8080, protocol: "TCP".to_owned() }],
        ..Pod::default()
    }
}

/// Returns the address of the pod in the files of the balancer.
pub(crate) fn address(number: u8) -> String {
    format!("10.9.8.{number}:8080")
}

pub(crate) fn question(phase: Phase, pod: Pod) -> HandleRequest {
    HandleRequest {
        hook_name: "example-balancer".to_owned(),
        phase: phase.into(),
        question_id: format!("{}/{}", phase.as_str_name(), pod.uid),
        pod: Some(pod),
        attempt: 1,
        ..HandleRequest::default()
    }
}

/// Returns the outcome, the evidence and the message in one line.
pub(crate) fn summary(answer: &HandleResponse) -> String {
    let outcome = answer.outcome().as_str_name().trim_start_matches("OUTCOME_");
    match &answer.evidence {
        Some(evidence) => {
            let level = evidence.level().as_str_name().trim_start_matches("EVIDENCE_LEVEL_");
            format!("{outcome} {level}: {}{}", answer.message, evidence.detail)
        }
        None => format!("{outcome}: {}", answer.message),
    }
}
