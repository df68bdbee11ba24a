//! An operator that uses Podward over gRPC.

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use podward_e2e::Fixture;
use podward_proto::v1::{
    OperationState, PodReference, WatchRequest, WatchResponse, lifecycle_client::LifecycleClient,
};
use podward_runtime::grpc_client::{Connect, Trust};
use podward_support::{ServiceKind, WAIT, within};
use serde_json::json;
use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::deletion::objects::make;

/// Sends the token with each call.
pub(crate) struct BearerToken(MetadataValue<Ascii>);

impl Interceptor for BearerToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Returns a client of one of the replicas, for an account that may edit objects in the namespace.
pub(crate) async fn client(
    fixture: &Fixture,
) -> Result<LifecycleClient<InterceptedService<Channel, BearerToken>>> {
    let bearer = format!("Bearer {}", token(fixture).await?);
    let bearer = BearerToken(bearer.parse().context("a token that can't be sent")?);
    let podward = fixture.podward()?;
    let controller = podward.services(ServiceKind::LifecycleController);
    let address = controller.last().context("there is no lifecycle-controller")?.serves_at()?;
    let (address, trust) = (fixture.cluster().reach(address).await?, podward.trust().await?);
    let connect = Connect::new(&format!("https://{address}"), Trust::pem(trust.ca))?;
    let channel = connect.with_server_name(&trust.server_name)?.lazy()?;
    Ok(LifecycleClient::with_interceptor(channel, bearer))
}

/// The stream of changes of one pod over gRPC.
pub(crate) struct WatchStream(Streaming<WatchResponse>);

impl WatchStream {
    /// Watches `pod`.
    pub(crate) async fn start(fixture: &Fixture, pod: &str) -> Result<Self> {
        let pod = PodReference {
            namespace: fixture.namespace().to_owned(),
            name: pod.to_owned(),
            uid: String::new(),
        };
        let watch = client(fixture).await?.watch(WatchRequest { pod: Some(pod) }).await.context("watch")?;
        Ok(Self(watch.into_inner()))
    }

    /// Waits until `test` is true for the operation `id`. `None` means that there is no such operation.
    pub(crate) async fn until(
        &mut self,
        id: &str,
        what: &str,
        test: impl Fn(Option<&OperationState>) -> bool,
    ) -> Result<Option<OperationState>> {
        let told = async {
            loop {
                let message = self.0.message().await.context("read the watch")?;
                let lifecycle = message.context("the watch has ended")?.lifecycle.unwrap_or_default();
                let is_it = |state: &OperationState| state.operation.as_ref().is_some_and(|it| it.id == id);
                let state = lifecycle.operations.into_iter().find(is_it);
                if test(state.as_ref()) {
                    return Ok(state);
                }
            }
        };
        within(WAIT, || format!("the watch over gRPC until {what}"), told).await
    }
}

/// Returns the token of an account that may edit objects in the namespace.
async fn token(fixture: &Fixture) -> Result<String> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "editor"}});
    make(fixture, account).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": fixture.namespace()}],
    });
    make(fixture, binding).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client(), fixture.namespace());
    let spec = TokenRequestSpec { audiences: vec!["podward".to_owned()], ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request("editor", &PostParams::default(), &request).await?;
    Ok(answer.status.context("an answer without a token")?.token)
}
