//! The gRPC client of the lifecycle-controller.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use podward_proto::v1;
use podward_proto::v1::lifecycle_client::LifecycleClient;
use podward_runtime::grpc_client::{BearerToken, Replicas};
use tonic::Status;

use super::request_recorder::RequestRecorder;

/// A [`RequestRecorder`] that calls the lifecycle-controller. It connects for the first call, and reconnects when the
/// connection is lost.
#[derive(Clone, Debug)]
pub struct ControllerClient {
    replicas: Replicas,
    token: BearerToken,
}

impl ControllerClient {
    /// Returns a client of the replicas. Their authorities and the token file need not exist yet.
    #[must_use]
    pub fn new(replicas: Replicas, token: BearerToken) -> Self {
        Self { replicas, token }
    }
}

impl RequestRecorder for ControllerClient {
    fn record(
        &self,
        request: v1::RequestDeletionRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<v1::RequestDeletionResponse, Status>> {
        let call = move |channel| {
            let mut client = LifecycleClient::with_interceptor(channel, self.token.clone());
            let request = request.clone();
            async move { client.request_deletion(request).await.map(tonic::Response::into_inner) }
        };
        async move { self.replicas.ask(timeout, call).await }.boxed()
    }
}
