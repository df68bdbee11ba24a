//! An operator who speaks with Podward over gRPC.

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use podward_e2e::Scene;
use podward_proto::v1::{
    OperationState, PodReference, WatchRequest, WatchResponse, lifecycle_client::LifecycleClient,
};
use podward_runtime::grpc_client::{Connect, Trust};
use podward_support::{Kind, WAIT, within};
use serde_json::json;
use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::deletion::made::make;

/// Shows the token with each call.
pub(crate) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// A client of one of the replicas, for somebody who may edit what is in the namespace.
pub(crate) async fn client(scene: &Scene) -> Result<LifecycleClient<InterceptedService<Channel, Bearer>>> {
    let bearer = format!("Bearer {}", token(scene).await?);
    let bearer = Bearer(bearer.parse().context("a token that can't be sent")?);
    let podward = scene.podward()?;
    let controller = podward.services(Kind::LifecycleController);
    let address = controller.last().context("there is no lifecycle-controller")?.serves_at()?;
    let (address, trust) = (scene.cluster().reach(address).await?, podward.trust().await?);
    let connect = Connect::new(&format!("https://{address}"), Trust::pem(trust.ca))?;
    let channel = connect.with_server_name(&trust.server_name)?.lazy()?;
    Ok(LifecycleClient::with_interceptor(channel, bearer))
}

/// The life of one pod, as it is told over gRPC.
pub(crate) struct Watched(Streaming<WatchResponse>);

impl Watched {
    /// Watches `pod`.
    pub(crate) async fn start(scene: &Scene, pod: &str) -> Result<Self> {
        let pod = PodReference {
            namespace: scene.namespace().to_owned(),
            name: pod.to_owned(),
            uid: String::new(),
        };
        let watch = client(scene).await?.watch(WatchRequest { pod: Some(pod) }).await.context("watch")?;
        Ok(Self(watch.into_inner()))
    }

    /// Waits until it tells something of the operation `id` that is as `test` wants it; `None` is that there is no such operation.
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

/// The token of an account that may edit what is in the namespace.
async fn token(scene: &Scene) -> Result<String> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "editor"}});
    make(scene, account).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": scene.namespace()}],
    });
    make(scene, binding).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(scene.client(), scene.namespace());
    let spec = TokenRequestSpec { audiences: vec!["podward".to_owned()], ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request("editor", &PostParams::default(), &request).await?;
    Ok(answer.status.context("an answer without a token")?.token)
}
