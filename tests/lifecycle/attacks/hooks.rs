//! Attacks by authors of hooks.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec},
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use podward_api::LifecycleHook;
use podward_e2e::{Fixture, Test};
use podward_proto::v1::{self, Phase, attach_request::Message, hook::Connection};
use podward_support::Installation;
use serde_json::json;
use tokio_stream::iter;
use tonic::Code;

use crate::hooks::{
    registry::{Registry, RegistryToken},
    server::{HookServer, unique},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("attack_replace_the_endpoint_of_another_hook", replace_the_endpoint_of_another_hook),
        Test::node("attack_replay_the_token_that_a_hook_receives", replay_the_token_that_a_hook_receives),
    ]
}

/// An account that may create hooks, and nothing else.
struct Creator<'a> {
    fixture: &'a Fixture,
    role: String,
}

impl<'a> Creator<'a> {
    async fn make(fixture: &'a Fixture) -> Result<Self> {
        let (client, namespace) = (fixture.client(), fixture.namespace());
        let role = format!("creator-{namespace}");
        let params = PostParams::default();
        let account = serde_json::from_value(json!({"metadata": {"name": "creator"}}))?;
        Api::<ServiceAccount>::namespaced(client.clone(), namespace).create(&params, &account).await?;
        let rule = json!({"apiGroups": ["podward.io"], "resources": ["lifecyclehooks"], "verbs": ["create"]});
        let object = serde_json::from_value(json!({"metadata": {"name": role}, "rules": [rule]}))?;
        Api::<ClusterRole>::all(client.clone()).create(&params, &object).await?;
        let object = serde_json::from_value(json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "creator"}],
        }))?;
        Api::<ClusterRoleBinding>::all(client).create(&params, &object).await?;
        Ok(Self { fixture, role })
    }

    async fn token(&self) -> Result<RegistryToken> {
        let spec = TokenRequestSpec { audiences: vec!["podward".to_owned()], ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.fixture.client(), self.fixture.namespace());
        let answer = accounts.create_token_request("creator", &PostParams::default(), &request).await?;
        RegistryToken::new(&answer.status.context("an answer without a token")?.token)
    }

    async fn remove(&self) -> Result<()> {
        let params = DeleteParams::default();
        Api::<ClusterRoleBinding>::all(self.fixture.client()).delete(&self.role, &params).await?;
        Api::<ClusterRole>::all(self.fixture.client()).delete(&self.role, &params).await?;
        Ok(())
    }
}

/// The right to create hooks is not the right to change them: with the endpoint of another hook, the author would decide
/// when its pods are drained.
async fn replace_the_endpoint_of_another_hook(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let creator = Creator::make(&fixture).await?;
    let mallory = HookServer::start(&fixture, "mallory").await?;
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let hook = |name: &str| v1::Hook {
        name: name.to_owned(),
        phases: vec![Phase::Prepare.into(), Phase::Complete.into()],
        pod_selector: Some(v1::LabelSelector {
            match_labels: [("app".to_owned(), mallory.name().to_owned())].into(),
            match_expressions: Vec::new(),
        }),
        connection: Some(Connection::Endpoint(mallory.connection())),
        ..v1::Hook::default()
    };
    let victim = unique("victim");
    let attachment = Some(Connection::Attachment(v1::Attachment {}));
    let victims = v1::Hook { connection: attachment, ..hook(&victim) };
    registry.client()?.register(v1::RegisterRequest { hook: Some(victims) }).await?;
    let before = hooks.get(&victim).await?;
    let mut client = registry.client_with(creator.token().await?, None)?;
    let request = |name: &str| v1::RegisterRequest { hook: Some(hook(name)) };
    let refused = client.register(request(&victim)).await.err().context("it was replaced")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused:?}");
    ensure!(refused.message().contains("may not update"), "{refused:?}");
    let hello = Message::Hello(v1::AttachHello { hook_name: victim.clone(), namespace: String::new() });
    let attach = client.attach(iter([v1::AttachRequest { message: Some(hello) }])).await;
    let refused = attach.err().context("it was attached")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused:?}");
    let after = hooks.get(&victim).await?;
    ensure!(before.spec == after.spec, "{:?}", after.spec);
    // A hook of its own is accepted, and its author is recorded.
    client.register(request(mallory.name())).await?;
    let own = hooks.get(mallory.name()).await?;
    let owner = own.metadata.annotations.unwrap_or_default().remove("podward.io/owner").unwrap_or_default();
    let creators = format!("system:serviceaccount:{}:creator", fixture.namespace());
    ensure!(owner == creators, "{owner}");
    mallory.delete().await?;
    hooks.delete(&victim, &DeleteParams::default()).await?;
    creator.remove().await?;
    registry.end().await
}

/// A hook server receives a token of the lifecycle-controller, which may delete pods. It must be good for nothing else.
async fn replay_the_token_that_a_hook_receives(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let mallory = HookServer::start(&fixture, "replay").await?;
    mallory.put_reachable(json!({"phases": ["Prepare", "Complete"]})).await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let token = mallory.received_token().context("the hook has received no token")?;

    // At another hook: this is the review by which hook servers check a token.
    let review = async |hook: &str| {
        let spec = TokenReviewSpec {
            token: Some(token.clone()),
            audiences: Some(vec![format!("podward.io/hooks/{hook}")]),
        };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(fixture.client());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        anyhow::Ok(
            (status.authenticated == Some(true))
                .then_some(status.user.and_then(|user| user.username))
                .flatten(),
        )
    };
    let known = review(mallory.name()).await?.context("the hook's own review refuses the token")?;
    let controller = format!("system:serviceaccount:{}:lifecycle-controller", Installation::NAMESPACE);
    ensure!(known == controller, "{known}");
    ensure!(review("traffic-controller").await?.is_none(), "the traffic-controller accepts the token");

    // At Podward.
    let mut client = registry.client_with(RegistryToken::new(&token)?, None)?;
    let refused = client.list(v1::ListRequest::default()).await.err().context("it was listed")?;
    ensure!(refused.code() == Code::Unauthenticated, "Podward: {refused:?}");

    // At the API server.
    let test_cluster = fixture.cluster().test_cluster().context("this needs a test cluster")?;
    let kubeconfig = Kubeconfig::read_from(test_cluster.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info = serde_json::from_value(json!({"token": token}))?;
    let api: Api<Namespace> = Api::all(Client::try_from(config)?);
    let refused = api.list(&ListParams::default()).await.err().context("the API server accepts it")?;
    ensure!(
        matches!(&refused, kube::Error::Api(status) if status.code == 401),
        "the API server: {refused:?}"
    );

    // The same checks accept the same account with the right audience, so the audience is the reason.
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client(), Installation::NAMESPACE);
    let spec = TokenRequestSpec { audiences: vec!["podward".to_owned()], ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer =
        accounts.create_token_request("lifecycle-controller", &PostParams::default(), &request).await?;
    let known = RegistryToken::new(&answer.status.context("an answer without a token")?.token)?;
    registry
        .client_with(known, None)?
        .list(v1::ListRequest::default())
        .await
        .context("with the right audience")?;
    mallory.delete().await?;
    registry.end().await
}
