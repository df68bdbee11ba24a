//! The gRPC client of the lifecycle-controller.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::future::{BoxFuture, FutureExt};
use podward_proto::v1;
use podward_proto::v1::lifecycle_client::LifecycleClient;
use podward_runtime::grpc_client::{BearerToken, InvalidEndpoint, Replicas, Trust};
use podward_runtime::tls::AuthoritySource;
use tonic::Status;

use super::request_recorder::RequestRecorder;

/// Arguments of the connection to the lifecycle-controller.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// URL of the gRPC port of the lifecycle-controller: https://<host>:<port>. For several replicas, repeat the flag
    /// or separate the URLs by commas. They are tried in this order
    #[arg(
        long,
        env = "PODWARD_CONTROLLER_URL",
        value_delimiter = ',',
        default_value = "https://lifecycle-controller.podward-system.svc:9444"
    )]
    pub controller_url: Vec<String>,
    /// PEM file with the certificate authorities that the lifecycle-controller's certificate is verified with. It is
    /// read again when it changes. The default is ca.crt in the Secret of --tls-secret, or the file ca.crt beside
    /// --tls-cert
    #[arg(long, env = "PODWARD_CONTROLLER_CA", value_name = "FILE")]
    pub controller_ca: Option<PathBuf>,
    /// File with the service account token that authenticates this service. It is read again when it changes
    #[arg(
        long,
        env = "PODWARD_TOKEN_FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    pub token_file: PathBuf,
}

/// A [`RequestRecorder`] that calls the lifecycle-controller. It connects for the first call, and reconnects when the
/// connection is lost.
#[derive(Clone, Debug)]
pub struct ControllerClient {
    replicas: Replicas,
    token: BearerToken,
}

impl ControllerClient {
    /// Returns a client that verifies the lifecycle-controller with `authorities`. The certificates and the token file
    /// need not exist yet.
    ///
    /// # Errors
    /// Fails if a URL is not the URL of a gRPC server.
    pub fn new(args: &ControllerArgs, authorities: AuthoritySource) -> Result<Self, InvalidEndpoint> {
        let replicas = Replicas::new(&args.controller_url, Trust::new(authorities))?;
        Ok(Self { replicas, token: BearerToken::from_file(&args.token_file) })
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
