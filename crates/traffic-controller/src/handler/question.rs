//! Conversion of questions from gRPC.

use std::sync::Arc;

use podward_core::UnixNanos;
use podward_core::hooks::HookPhase;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_proto::v1::{self, HandleRequest};
use tonic::Status;

use crate::index::TargetPod;

/// A question of the lifecycle-controller about a pod.
#[derive(Clone, Debug)]
pub(super) struct TrafficQuestion {
    pub(super) phase: HookPhase,
    pub(super) pod: TargetPod,
    /// The ID of the question. It is the same for each attempt.
    pub(super) id: String,
    /// When the question was first asked.
    pub(super) asked_at: Option<UnixNanos>,
    /// True if the pod has no opt-in label.
    pub(super) opted_out: bool,
}

impl TryFrom<HandleRequest> for TrafficQuestion {
    type Error = Status;

    fn try_from(request: HandleRequest) -> Result<Self, Status> {
        let phase = match request.phase() {
            v1::Phase::PreCheck => HookPhase::PreCheck,
            v1::Phase::Prepare => HookPhase::Prepare,
            v1::Phase::Complete => HookPhase::Complete,
            v1::Phase::Release => HookPhase::Release,
            v1::Phase::PostCheck | v1::Phase::Unspecified => {
                return Err(Status::invalid_argument(
                    "the traffic-controller answers PRE_CHECK, PREPARE, COMPLETE and RELEASE; remove other phases from \
                     its LifecycleHook",
                ));
            }
        };
        let pod = request.pod.ok_or_else(|| Status::invalid_argument("pod is missing"))?;
        if pod.namespace.is_empty() || pod.uid.is_empty() {
            return Err(Status::invalid_argument("pod.namespace and pod.uid must be set"));
        }
        let asked_at = request.asked_at.map(|time| {
            UnixNanos(time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into()))
        });
        let id = match request.question_id.as_str() {
            "" => format!("{}/{phase:?}/{}", pod.uid, asked_at.unwrap_or_default()),
            id => id.to_owned(),
        };
        let opted_out = pod.labels.get(CONTROL_LABEL).map(String::as_str) != Some(CONTROL_VALUE);
        let is_tcp = |port: &&v1::ContainerPort| port.protocol == "TCP";
        let pod = TargetPod {
            namespace: Arc::from(pod.namespace),
            name: pod.name,
            uid: Arc::from(pod.uid),
            addresses: pod.ips.iter().filter_map(|address| address.parse().ok()).collect(),
            ports: pod.ports.iter().filter(is_tcp).filter_map(|port| port.port.try_into().ok()).collect(),
            labels: pod.labels.into_iter().collect(),
            node: pod.node_name,
            never_ready: pod.never_ready,
        };
        Ok(Self { phase, pod, id, asked_at, opted_out })
    }
}
