//! The answers. They depend only on the present state, so a question can be repeated at any time and to any replica.

use std::time::Duration;

use anyhow::Result;
use podward_proto::v1::{
    Evidence, EvidenceLevel, HandleRequest, HandleResponse, Outcome, Phase, Pod,
    hook_handler_server::HookHandler,
};
use tonic::{Request, Response, Status};

use crate::{
    balancer::{Backend, Balancer},
    caller::Caller,
};

/// The delay until Podward asks again while connections are open.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Answers questions about the backends of the balancer.
pub(crate) struct Handler {
    pub(crate) balancer: Balancer,
    /// Authenticates callers. `None` accepts all callers.
    pub(crate) caller: Option<Caller>,
}

#[tonic::async_trait]
impl HookHandler for Handler {
    async fn handle(&self, request: Request<HandleRequest>) -> Result<Response<HandleResponse>, Status> {
        if let Some(caller) = &self.caller {
            caller.check(request.metadata()).await?;
        }
        let question = request.into_inner();
        let pod = question.pod.as_ref().ok_or_else(|| Status::invalid_argument("the request has no pod"))?;
        if pod.uid.is_empty() {
            return Err(Status::invalid_argument("the pod has no UID"));
        }
        let answer = match question.phase() {
            Phase::Prepare => self.drain(pod).await,
            Phase::Complete => self.add(pod).await,
            Phase::Release => self.forget(pod).await,
            other => {
                return Err(Status::invalid_argument(format!(
                    "this hook is not for {}",
                    other.as_str_name()
                )));
            }
        };
        // An error means that the hook is unreachable. Podward retries with growing delays, and shows the message.
        let answer = answer.map_err(|error| Status::unavailable(format!("{error:#}")))?;
        println!(
            "{} {}/{}: {} {}{}",
            question.phase().as_str_name(),
            pod.namespace,
            pod.name,
            answer.outcome().as_str_name(),
            answer.message,
            answer.evidence.as_ref().map_or("", |evidence| &evidence.detail)
        );
        Ok(Response::new(answer))
    }
}

impl Handler {
    /// PREPARE: removes the pod from the backends, and waits until its connections have ended.
    async fn drain(&self, pod: &Pod) -> Result<HandleResponse> {
        let generation = self.balancer.set(&pod.uid, None).await?;
        let Some(report) = self.balancer.report().await? else {
            return Ok(done(EvidenceLevel::Assumed, "the balancer does not report its state".to_owned()));
        };
        if report.generation < generation {
            return Ok(pending("the balancer has not applied the change yet"));
        }
        let open =
            address(pod).and_then(|address| report.connections.get(&address)).copied().unwrap_or_default();
        Ok(match open {
            0 => done(
                EvidenceLevel::Proven,
                format!("removed in generation {generation}, no open connections"),
            ),
            1 => pending("1 connection is left"),
            _ => pending(&format!("{open} connections are left")),
        })
    }

    /// COMPLETE: adds the pod to the backends, and waits until the balancer has applied the change.
    async fn add(&self, pod: &Pod) -> Result<HandleResponse> {
        if tcp_port(pod).is_none() {
            let why = format!(
                "no container of {}/{} declares a TCP port to send traffic to",
                pod.namespace, pod.name
            );
            return Ok(HandleResponse { message: why, ..answer(Outcome::Rejected) });
        }
        let Some(address) = address(pod) else { return Ok(pending("the pod has no address yet")) };
        let backend = Backend { pod: format!("{}/{}", pod.namespace, pod.name), address };
        let generation = self.balancer.set(&pod.uid, Some(backend)).await?;
        Ok(match self.balancer.report().await? {
            None => done(EvidenceLevel::Assumed, "the balancer does not report its state".to_owned()),
            Some(report) if report.generation < generation => {
                pending("the balancer has not applied the change yet")
            }
            Some(_) => done(EvidenceLevel::Proven, format!("added in generation {generation}")),
        })
    }

    /// RELEASE: removes the pod from the backends. The pod has ended, so there is nothing to wait for.
    async fn forget(&self, pod: &Pod) -> Result<HandleResponse> {
        let generation = self.balancer.set(&pod.uid, None).await?;
        Ok(done(EvidenceLevel::Assumed, format!("removed in generation {generation}")))
    }
}

fn tcp_port(pod: &Pod) -> Option<u32> {
    pod.ports.iter().find(|port| matches!(port.protocol.as_str(), "TCP" | "")).map(|port| port.port)
}

fn address(pod: &Pod) -> Option<String> {
    let (ip, port) = (pod.ips.first()?, tcp_port(pod)?);
    Some(if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") })
}

fn answer(outcome: Outcome) -> HandleResponse {
    HandleResponse { outcome: outcome.into(), ..HandleResponse::default() }
}

fn done(level: EvidenceLevel, detail: String) -> HandleResponse {
    HandleResponse { evidence: Some(Evidence { level: level.into(), detail }), ..answer(Outcome::Done) }
}

fn pending(what: &str) -> HandleResponse {
    let retry_after = prost_types::Duration::try_from(RETRY_AFTER).ok();
    HandleResponse { message: what.to_owned(), retry_after, ..answer(Outcome::Pending) }
}
