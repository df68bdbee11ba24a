//! The lifecycle-controller, over gRPC.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::future::{BoxFuture, FutureExt};
use podward_proto::v1;
use podward_proto::v1::lifecycle_client::LifecycleClient;
use podward_runtime::grpc_client::{BearerToken, InvalidEndpoint, Replicas, Trust};
use tonic::Status;

use super::Recorder;

/// Arguments of the way to the lifecycle-controller.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// Where any replica of the lifecycle-controller serves gRPC: https://<host>:<port>. Several, each asked when those before it
    /// can't be reached, are given by repeating this, or with commas in between
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_URL",
        value_delimiter = ',',
        default_value = "https://lifecycle-controller.podward-system.svc:9444"
    )]
    pub controller_url: Vec<String>,
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
    replicas: Replicas,
    token: BearerToken,
}

impl Controller {
    /// The controller that `args` name. Its files need not be there yet.
    ///
    /// # Errors
    /// When a URL is none of a gRPC server's.
    pub fn new(args: &ControllerArgs) -> Result<Self, InvalidEndpoint> {
        let replicas = Replicas::new(&args.controller_url, Trust::file(&args.controller_ca))?;
        Ok(Self { replicas, token: BearerToken::from_file(&args.token_file) })
    }
}

impl Recorder for Controller {
    fn record(
        &self,
        request: v1::RequestDeletionRequest,
        patience: Duration,
    ) -> BoxFuture<'_, Result<v1::RequestDeletionResponse, Status>> {
        let call = move |channel| {
            let mut client = LifecycleClient::with_interceptor(channel, self.token.clone());
            let request = request.clone();
            async move { client.request_deletion(request).await.map(tonic::Response::into_inner) }
        };
        async move { self.replicas.ask(patience, call).await }.boxed()
    }
}
