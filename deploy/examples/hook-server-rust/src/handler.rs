//! The answers. Each is worked out from what is so now, so it doesn't matter how often, or by whom, a question is asked.

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

/// When to ask again while connections end. Podward asks no sooner.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Answers for the balancer.
pub(crate) struct Handler {
    pub(crate) balancer: Balancer,
    /// Who may call; anybody if there is nobody to check.
    pub(crate) caller: Option<Caller>,
}

#[tonic::async_trait]
impl HookHandler for Handler {
    async fn handle(&self, request: Request<HandleRequest>) -> Result<Response<HandleResponse>, Status> {
        if let Some(caller) = &self.caller {
            caller.check(request.metadata()).await?;
        }
        let question = request.into_inner();
        let pod = question.pod.as_ref().ok_or_else(|| Status::invalid_argument("there is no pod in it"))?;
        if pod.uid.is_empty() {
            return Err(Status::invalid_argument("the pod has no uid"));
        }
        let answer = match question.phase() {
            Phase::Prepare => self.let_go(pod).await,
            Phase::Complete => self.take_in(pod).await,
            Phase::Release => self.forget(pod).await,
            other => {
                return Err(Status::invalid_argument(format!(
                    "this hook is not for {}",
                    other.as_str_name()
                )));
            }
        };
        // An error counts as unreachable: Podward asks again, later and later, and shows the text.
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
    /// PREPARE: no new connections, then wait for the open ones.
    async fn let_go(&self, pod: &Pod) -> Result<HandleResponse> {
        let generation = self.balancer.set(&pod.uid, None).await?;
        let Some(report) = self.balancer.report().await? else {
            return Ok(done(EvidenceLevel::Assumed, "the balancer was told, and doesn't report".to_owned()));
        };
        if report.generation < generation {
            return Ok(pending("the balancer has not taken in the change yet"));
        }
        let open =
            address(pod).and_then(|address| report.connections.get(&address)).copied().unwrap_or_default();
        Ok(match open {
            0 => {
                done(EvidenceLevel::Proven, format!("out since generation {generation}, no connection left"))
            }
            1 => pending("1 connection is left"),
            _ => pending(&format!("{open} connections are left")),
        })
    }

    /// COMPLETE: take it in, then wait until the balancer has.
    async fn take_in(&self, pod: &Pod) -> Result<HandleResponse> {
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
            None => done(EvidenceLevel::Assumed, "the balancer was told, and doesn't report".to_owned()),
            Some(report) if report.generation < generation => {
                pending("the balancer has not taken in the change yet")
            }
            Some(_) => done(EvidenceLevel::Proven, format!("in since generation {generation}")),
        })
    }

    /// RELEASE: the pod is gone, so there is nothing to wait for.
    async fn forget(&self, pod: &Pod) -> Result<HandleResponse> {
        let generation = self.balancer.set(&pod.uid, None).await?;
        Ok(done(EvidenceLevel::Assumed, format!("out of the backends of generation {generation}")))
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
