//! The gRPC service.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use podward_proto::v1::node_agent_server::NodeAgent;
use podward_proto::v1::{AwaitQuietRequest, AwaitQuietResponse, ReadKubeProxyRequest, ReadKubeProxyResponse};
use podward_runtime::authn::Authenticator;
use tonic::{Request, Response, Status};

use crate::connections::PodConnections;
use crate::kube_proxy::KubeProxy;
use crate::pod_sockets::{PodSockets, PodSocketsError};
use crate::pod_uid::PodUid;
use crate::rested::Rested;

/// The audience of callers' tokens. A token that another service has received is refused.
pub(crate) const AUDIENCE: &str = "podward.io/node-agent";
/// The pause between two reads of the sockets of a pod.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// The maximum value of `timeout`.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers the traffic-controller.
pub(crate) struct AgentHandler {
    pub(crate) proc: PathBuf,
    pub(crate) kube_proxy: KubeProxy,
    pub(crate) authenticator: Arc<Authenticator>,
    /// The only user that may call.
    pub(crate) allowed_user: String,
}

#[tonic::async_trait]
impl NodeAgent for AgentHandler {
    async fn await_quiet(
        &self,
        request: Request<AwaitQuietRequest>,
    ) -> Result<Response<AwaitQuietResponse>, Status> {
        self.check_caller(&request).await?;
        let request = request.into_inner();
        let uid =
            PodUid::parse(&request.pod_uid).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let quiet = duration("quiet", request.quiet)?;
        let timeout = duration("timeout", request.timeout)?;
        if timeout > MAX_TIMEOUT {
            return Err(Status::invalid_argument(format!(
                "timeout is more than {} s",
                MAX_TIMEOUT.as_secs()
            )));
        }
        let ports = request.ports.into_iter().map(u16::try_from).collect::<Result<BTreeSet<u16>, _>>();
        let served = Arc::new(ports.map_err(|_| Status::invalid_argument("a port is more than 65535"))?);
        let began = Instant::now();
        let mut rested = Rested::new(quiet);
        let proc = self.proc.clone();
        let mut pod = Some(blocking(move || PodSockets::find(&proc, uid)).await?);
        loop {
            let Some(sockets) = pod.take() else { return Err(Status::internal("the sockets were lost")) };
            let served = Arc::clone(&served);
            let (sockets, read) = blocking(move || {
                let read = sockets.connections(&served)?;
                Ok((sockets, read))
            })
            .await?;
            rested.observe(&read, began.elapsed());
            if read.is_quiet(quiet) || began.elapsed() >= timeout {
                return Ok(Response::new(response(&read, &rested)));
            }
            pod = Some(sockets);
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }

    async fn read_kube_proxy(
        &self,
        request: Request<ReadKubeProxyRequest>,
    ) -> Result<Response<ReadKubeProxyResponse>, Status> {
        self.check_caller(&request).await?;
        self.kube_proxy.read(request.into_inner().page()).await.map(Response::new)
    }
}

impl AgentHandler {
    async fn check_caller<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let caller = self.authenticator.authenticate(request).await?;
        if caller.user == self.allowed_user {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "{} may not call this service, only {} (--traffic-controller-user)",
            caller.user, self.allowed_user
        )))
    }
}

/// Runs `work`, which waits for the kernel, beside the threads that serve calls.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PodSocketsError> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Status::internal(format!("the sockets could not be read: {error}")))?.map_err(status)
}

fn status(error: PodSocketsError) -> Status {
    let message = error.to_string();
    match error {
        PodSocketsError::NotFound(_) => Status::not_found(message),
        PodSocketsError::HostNetwork(_) | PodSocketsError::NoPort(_) => Status::failed_precondition(message),
        PodSocketsError::Io { .. } => Status::unavailable(message),
    }
}

fn duration(name: &str, value: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let invalid = |why: &str| Status::invalid_argument(format!("{name} {why}"));
    let value = value.ok_or_else(|| invalid("is missing"))?;
    Duration::try_from(value).map_err(|_| invalid("is negative or too long"))
}

/// Returns the response. `rested` are the connections that have rested, maybe before `found` was read.
fn response(found: &PodConnections, rested: &Rested) -> AwaitQuietResponse {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    AwaitQuietResponse {
        open_connections: count(found.open),
        rested_connections: count(rested.count_in(found)),
        silent_for: found.silent_for.and_then(|silent| silent.try_into().ok()),
        listening_ports: found.ports.iter().copied().map(u32::from).collect(),
        has_other_protocols: found.has_other_protocols,
    }
}

#[cfg(test)]
mod tests;
