//! `Lifecycle`.

use std::sync::Arc;

use podward_core::wish::DeletionKind;
use podward_proto::v1;
use podward_proto::v1::lifecycle_server::Lifecycle;
use podward_runtime::authn::Identity;
use tonic::{Request, Response, Status};

use super::busy::{check_reason, say_busy, until};
use super::callers::Callers;
use super::change::{begin, cancel, check_words, finish};
use super::describe::describe;
use super::limits::Places;
use super::pods::{Pods, Which};
use super::watch::{Changes, changes};
use crate::cached_pod::{CachedPod, PodKey};
use crate::reconcile::now;

/// A wish that a pod be deleted, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// How.
    pub(crate) kind: DeletionKind,
    /// User name of who wishes it.
    pub(crate) requested_by: String,
    /// The grace period, in seconds; the pod's own when not given.
    pub(crate) grace_period_seconds: Option<u32>,
}

/// Who records wishes, on any replica.
#[tonic::async_trait]
pub(crate) trait Deletions: Send + Sync + 'static {
    /// Records the wish on `pod`, which has to have this `uid` if one is given, and gives the pod as it is stored then.
    ///
    /// # Errors
    /// What the caller is told: NOT_FOUND, no such pod; RESOURCE_EXHAUSTED, there is no room for it now, with the text for whoever wants
    /// the pod gone; FAILED_PRECONDITION, it has not opted in; UNAVAILABLE, the API server can't be asked.
    async fn request(&self, pod: &PodKey, uid: Option<&str>, asked: &Asked)
    -> Result<Arc<CachedPod>, Status>;
}

pub(super) struct LifecycleService {
    pub(super) callers: Callers,
    pub(super) pods: Pods,
    pub(super) deletions: Arc<dyn Deletions>,
    pub(super) watches: Places,
}

impl LifecycleService {
    /// The pod that `request` is about, if its sender may do `verb` to it.
    async fn admit<T>(
        &self,
        request: Request<T>,
        verb: &str,
        pod: impl FnOnce(&mut T) -> Option<v1::PodReference>,
    ) -> Result<(Arc<Identity>, Which, T), Status> {
        let who = self.callers.known(&request).await?;
        let mut message = request.into_inner();
        let which = Which::of(pod(&mut message))?;
        self.callers.check_pod(&who, verb, &which.key.namespace, &which.key.name).await?;
        Ok((who, which, message))
    }
}

#[tonic::async_trait]
impl Lifecycle for LifecycleService {
    async fn begin(&self, request: Request<v1::BeginRequest>) -> Result<Response<v1::BeginResponse>, Status> {
        let (_, which, request) = self.admit(request, "update", |begin| begin.pod.take()).await?;
        let operation =
            request.operation.ok_or_else(|| Status::invalid_argument("operation: it is missing"))?;
        check_words(&operation.id, Some(&operation.r#type))?;
        let decide = |pod: &CachedPod| begin(pod, &operation.id, &operation.r#type, now());
        let lifecycle = Some(describe(&self.pods.change(&which, decide).await?));
        Ok(Response::new(v1::BeginResponse { lifecycle }))
    }

    async fn finish(
        &self,
        request: Request<v1::FinishRequest>,
    ) -> Result<Response<v1::FinishResponse>, Status> {
        let (_, which, request) = self.admit(request, "update", |finish| finish.pod.take()).await?;
        check_words(&request.operation_id, None)?;
        let decide = |pod: &CachedPod| finish(pod, &request.operation_id, now());
        let lifecycle = Some(describe(&self.pods.change(&which, decide).await?));
        Ok(Response::new(v1::FinishResponse { lifecycle }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let (_, which, request) = self.admit(request, "update", |cancel| cancel.pod.take()).await?;
        check_words(&request.operation_id, None)?;
        let decide = |pod: &CachedPod| cancel(pod, &request.operation_id, now());
        let lifecycle = Some(describe(&self.pods.change(&which, decide).await?));
        Ok(Response::new(v1::CancelResponse { lifecycle }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let (_, which, _) = self.admit(request, "get", |get| get.pod.take()).await?;
        let lifecycle = Some(describe(&self.pods.read(&which).await?));
        Ok(Response::new(v1::GetResponse { lifecycle }))
    }

    type WatchStream = Changes;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Changes>, Status> {
        let (_, which, _) = self.admit(request, "get", |watch| watch.pod.take()).await?;
        Ok(Response::new(changes(&self.pods, which, self.watches.take()?)))
    }

    async fn request_deletion(
        &self,
        request: Request<v1::RequestDeletionRequest>,
    ) -> Result<Response<v1::RequestDeletionResponse>, Status> {
        let who = self.callers.known(&request).await?;
        let v1::RequestDeletionRequest { pod, wish } = request.into_inner();
        let which = Which::of(pod)?;
        let is_trusted = self.callers.is_trusted_requester(&who);
        if !is_trusted {
            self.callers.check_pod(&who, "delete", &which.key.namespace, &which.key.name).await?;
        }
        let asked = asked(wish, is_trusted, &who)?;
        let pod = self.deletions.request(&which.key, which.uid.as_deref(), &asked).await?;
        Ok(Response::new(v1::RequestDeletionResponse { lifecycle: Some(describe(&pod)) }))
    }

    async fn busy(&self, request: Request<v1::BusyRequest>) -> Result<Response<v1::BusyResponse>, Status> {
        let (_, which, request) = self.admit(request, "update", |busy| busy.pod.take()).await?;
        let until = request.until.map(until).transpose()?;
        check_reason(&request.reason)?;
        let decide = |pod: &CachedPod| say_busy(pod, until, &request.reason, now());
        let lifecycle = Some(describe(&self.pods.change(&which, decide).await?));
        Ok(Response::new(v1::BusyResponse { lifecycle }))
    }
}

fn asked(wish: Option<v1::DeletionWish>, is_trusted: bool, who: &Identity) -> Result<Asked, Status> {
    let wish = wish.ok_or_else(|| Status::invalid_argument("wish: it is missing"))?;
    let kind = match wish.kind() {
        v1::DeletionKind::Delete => DeletionKind::Delete,
        v1::DeletionKind::Evict => DeletionKind::Evict,
        v1::DeletionKind::Unspecified => {
            return Err(Status::invalid_argument(
                "wish.kind must be DELETION_KIND_DELETE or DELETION_KIND_EVICT",
            ));
        }
    };
    let named = Some(wish.requested_by).filter(|user| is_trusted && !user.is_empty());
    let requested_by = named.unwrap_or_else(|| who.user.clone());
    Ok(Asked { kind, requested_by, grace_period_seconds: wish.grace_period_seconds })
}
