//! The service `Lifecycle`.

use std::sync::Arc;
use std::time::Duration;

use podward_core::UnixNanos;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_kube_util::{CachedPod, PodKey, now};
use podward_proto::v1;
use podward_proto::v1::lifecycle_server::Lifecycle;
use podward_runtime::authn::Identity;
use tonic::{Request, Response, Status};

use super::busy::{check_reason, mark_busy, parse_until};
use super::callers::Callers;
use super::deletion_recorder::DeletionRecorder;
use super::describe::describe;
use super::operations::{begin, cancel, check_operation, finish};
use super::pod_target::PodTarget;
use super::pods::Pods;
use super::revocation::until_revoked;
use super::stream_limit::StreamLimit;
use super::watch::{WatchResponses, watch};

/// Implements the service `Lifecycle`.
pub(super) struct LifecycleService {
    pub(super) callers: Callers,
    pub(super) pods: Pods,
    pub(super) deletions: Arc<dyn DeletionRecorder>,
    /// All watches, and those of a user.
    pub(super) watches: StreamLimit,
    /// The time after which the right of the caller of a watch is checked again.
    pub(super) recheck_interval: Duration,
}

/// A request of a caller who may make it.
struct Authorized<T> {
    caller: Arc<Identity>,
    target: PodTarget,
    message: T,
}

impl LifecycleService {
    /// Authenticates the caller and checks its right to `verb` the pod. Returns them with the pod and the message.
    async fn authorize<T>(
        &self,
        request: Request<T>,
        verb: &str,
        pod: impl FnOnce(&mut T) -> Option<v1::PodReference>,
    ) -> Result<Authorized<T>, Status> {
        let caller = self.callers.authenticate(&request).await?;
        let mut message = request.into_inner();
        let target = PodTarget::parse(pod(&mut message))?;
        self.callers.check_pod(&caller, verb, &target.key.namespace, &target.key.name).await?;
        Ok(Authorized { caller, target, message })
    }
}

#[tonic::async_trait]
impl Lifecycle for LifecycleService {
    async fn begin(&self, request: Request<v1::BeginRequest>) -> Result<Response<v1::BeginResponse>, Status> {
        let Authorized { caller, target, message: request } =
            self.authorize(request, "update", |begin| begin.pod.take()).await?;
        let operation =
            request.operation.ok_or_else(|| Status::invalid_argument("the field operation is missing"))?;
        check_operation(&operation.id, Some(&operation.r#type))?;
        let decide = |pod: &CachedPod| begin(pod, &operation.id, &operation.r#type, now());
        let lifecycle = Some(describe(&self.pods.change(&target, &caller.user, decide).await?));
        Ok(Response::new(v1::BeginResponse { lifecycle }))
    }

    async fn finish(
        &self,
        request: Request<v1::FinishRequest>,
    ) -> Result<Response<v1::FinishResponse>, Status> {
        let Authorized { caller, target, message: request } =
            self.authorize(request, "update", |finish| finish.pod.take()).await?;
        check_operation(&request.operation_id, None)?;
        let decide = |pod: &CachedPod| finish(pod, &request.operation_id, now());
        let lifecycle = Some(describe(&self.pods.change(&target, &caller.user, decide).await?));
        Ok(Response::new(v1::FinishResponse { lifecycle }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let Authorized { caller, target, message: request } =
            self.authorize(request, "update", |cancel| cancel.pod.take()).await?;
        check_operation(&request.operation_id, None)?;
        let decide = |pod: &CachedPod| cancel(pod, &request.operation_id, now());
        let lifecycle = Some(describe(&self.pods.change(&target, &caller.user, decide).await?));
        Ok(Response::new(v1::CancelResponse { lifecycle }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let Authorized { target, .. } = self.authorize(request, "get", |get| get.pod.take()).await?;
        let lifecycle = Some(describe(&self.pods.read(&target).await?));
        Ok(Response::new(v1::GetResponse { lifecycle }))
    }

    type WatchStream = WatchResponses;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<WatchResponses>, Status> {
        let Authorized { caller, target, .. } =
            self.authorize(request, "get", |watch| watch.pod.take()).await?;
        let counted = self.watches.acquire(Some(&caller.user))?;
        let (callers, PodKey { namespace, name }) = (self.callers.clone(), target.key.clone());
        let check = move || {
            let (callers, caller) = (callers.clone(), Arc::clone(&caller));
            let (namespace, name) = (namespace.clone(), name.clone());
            async move { callers.check_pod(&caller, "get", &namespace, &name).await }
        };
        let responses = watch(&self.pods, target, counted);
        Ok(Response::new(until_revoked(responses, self.recheck_interval, check)))
    }

    async fn request_deletion(
        &self,
        request: Request<v1::RequestDeletionRequest>,
    ) -> Result<Response<v1::RequestDeletionResponse>, Status> {
        let caller = self.callers.authenticate(&request).await?;
        let v1::RequestDeletionRequest { pod, deletion_request, requester } = request.into_inner();
        let target = PodTarget::parse(pod)?;
        let is_relayed = requester.is_some();
        let requester = self.callers.requester(caller, requester)?;
        let deletion_request = parse_deletion_request(deletion_request, &requester)?;
        let PodKey { namespace, name } = &target.key;
        self.callers.check_deletion(&requester, deletion_request.kind, namespace, name).await?;
        if is_relayed && target.uid.is_none() {
            return Err(Status::invalid_argument(
                "the field pod.uid is missing: a trusted requester must name the pod that was reviewed",
            ));
        }
        // The pods of a large workload may be counted for longer than the caller waits. In a task of its own, the count ends
        // all the same and the request is recorded, so that a repeated call finds it.
        let (deletions, PodTarget { key, uid }) = (Arc::clone(&self.deletions), target);
        let recording =
            tokio::spawn(async move { deletions.record(&key, uid.as_deref(), &deletion_request).await });
        let pod = recording.await.map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(v1::RequestDeletionResponse { lifecycle: Some(describe(&pod)) }))
    }

    async fn busy(&self, request: Request<v1::BusyRequest>) -> Result<Response<v1::BusyResponse>, Status> {
        let Authorized { caller, target, message: request } =
            self.authorize(request, "update", |busy| busy.pod.take()).await?;
        let until = request.until.map(parse_until).transpose()?;
        check_reason(&request.reason)?;
        let decide = |pod: &CachedPod| mark_busy(pod, until, &request.reason, now());
        let lifecycle = Some(describe(&self.pods.change(&target, &caller.user, decide).await?));
        Ok(Response::new(v1::BusyResponse { lifecycle }))
    }
}

/// Returns the deletion request of a message, in the name of `requester`.
fn parse_deletion_request(
    request: Option<v1::DeletionRequest>,
    requester: &Identity,
) -> Result<DeletionRequest, Status> {
    let request = request.ok_or_else(|| Status::invalid_argument("the field deletion_request is missing"))?;
    let kind = match request.kind() {
        v1::DeletionKind::Delete => DeletionKind::Delete,
        v1::DeletionKind::Evict => DeletionKind::Evict,
        v1::DeletionKind::Unspecified => {
            return Err(Status::invalid_argument(
                "deletion_request.kind must be DELETION_KIND_DELETE or DELETION_KIND_EVICT",
            ));
        }
    };
    Ok(DeletionRequest {
        grace_period_seconds: request.grace_period_seconds,
        ..DeletionRequest::new(kind, &requester.user, UnixNanos::default()).with_groups(&requester.groups)
    })
}
