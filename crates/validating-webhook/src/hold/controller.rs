//! The lifecycle-controller, over gRPC.

use std::path::PathBuf;

use clap::Args;
use futures::future::{BoxFuture, FutureExt};
use podward_proto::v1;
use podward_proto::v1::lifecycle_client::LifecycleClient;
use podward_runtime::grpc_client::{BearerToken, Connect, InvalidEndpoint, Trust};
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::Recorder;

/// Arguments of the way to the lifecycle-controller.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// Where any replica of the lifecycle-controller serves gRPC: https://<host>:<port>
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_URL",
        default_value = "https://lifecycle-controller.podward-system.svc:9444"
    )]
    pub controller_url: String,
    /// PEM file with the authorities that its certificate is checked against; read again when it changes
    #[arg(long, env = "PODWARD_CONTROLLER_CA", default_value = "/etc/podward/tls/ca.crt")]
    pub controller_ca: PathBuf,
    /// File with the token that is shown to it, of this service's own account; read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub token_file: PathBuf,
}

/// A [`Recorder`] that asks the lifecycle-controller. It connects when it is first used, and again when the connection is lost.
#[derive(Clone, Debug)]
pub struct Controller {
    client: LifecycleClient<InterceptedService<Channel, BearerToken>>,
}

impl Controller {
    /// The controller that `args` name. Its files need not be there yet.
    ///
    /// # Errors
    /// When the URL is none of a gRPC server's.
    pub fn new(args: &ControllerArgs) -> Result<Self, InvalidEndpoint> {
        let channel = Connect::new(&args.controller_url, Trust::file(&args.controller_ca))?.lazy()?;
        let token = BearerToken::from_file(&args.token_file);
        Ok(Self { client: LifecycleClient::with_interceptor(channel, token) })
    }
}

impl Recorder for Controller {
    fn record(
        &self,
        request: v1::RequestDeletionRequest,
    ) -> BoxFuture<'_, Result<v1::RequestDeletionResponse, Status>> {
        let mut client = self.client.clone();
        async move { client.request_deletion(request).await.map(tonic::Response::into_inner) }.boxed()
    }
}
