//! Clients of the registry without the necessary rights.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use podward_api::LifecycleHook;
use podward_e2e::{Fixture, Test};
use podward_proto::v1::{self, Phase, hook::Connection};
use serde_json::json;
use tonic::{Code, transport::Identity};

use super::{
    registry::{Registry, RegistryToken},
    server::unique,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("hook_registered_by_untrusted_writers", hook_registered_by_untrusted_writers)]
}

async fn hook_registered_by_untrusted_writers(fixture: Arc<Fixture>) -> Result<()> {
    let registry = Registry::of(&fixture).await?;
    let cluster = fixture.cluster();
    let certificate = |user: &str, expired| {
        let groups = ["system:masters"];
        let groups: &[&str] = if user == "admin" { &groups } else { &[] };
        let pem = cluster.client_certificate(user, groups, expired)?;
        Ok::<_, anyhow::Error>(Some(Identity::from_pem(pem.cert, pem.key)))
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client(), fixture.namespace());
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "stranger"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let token = async |audience: &str| {
        let spec = TokenRequestSpec { audiences: vec![audience.to_owned()], ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request("stranger", &PostParams::default(), &request).await?;
        RegistryToken::new(&answer.status.map(|status| status.token).unwrap_or_default())
    };
    let none = RegistryToken::default;
    let callers = [
        ("nobody", none(), None, &[Code::Unauthenticated][..]),
        (
            "a made-up token",
            RegistryToken::new("eyJhbGciOiJSUzI1NiJ9.e30.c2VjcmV0")?,
            None,
            &[Code::Unauthenticated],
        ),
        ("a token for others", token("somebody-else").await?, None, &[Code::Unauthenticated]),
        ("no right", token("podward").await?, None, &[Code::PermissionDenied]),
        ("a certificate without a right", none(), certificate("mallory", false)?, &[Code::PermissionDenied]),
        // The handshake fails. The error depends on the transport.
        (
            "an expired certificate",
            none(),
            certificate("admin", true)?,
            &[Code::Unavailable, Code::Unknown, Code::Cancelled],
        ),
    ];
    let name = unique("strange");
    let request = || v1::RegisterRequest {
        hook: Some(v1::Hook {
            name: name.clone(),
            phases: vec![Phase::Prepare.into()],
            connection: Some(Connection::Attachment(v1::Attachment {})),
            pod_selector: Some(v1::LabelSelector {
                match_labels: [("app".to_owned(), name.clone())].into(),
                match_expressions: Vec::new(),
            }),
            ..v1::Hook::default()
        }),
    };
    for (who, bearer, identity, codes) in callers {
        let mut client = registry.client_with(bearer, identity)?;
        let refused = client.register(request()).await.err();
        let code = refused.as_ref().map(tonic::Status::code);
        ensure!(code.is_some_and(|code| codes.contains(&code)), "register by {who}: {refused:?}");
        let refused = client
            .deregister(v1::DeregisterRequest {
                name: "traffic-controller".to_owned(),
                namespace: String::new(),
            })
            .await;
        ensure!(refused.is_err(), "deregister by {who} was taken");
    }
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    ensure!(hooks.get_opt(&name).await?.is_none(), "an untrusted writer has registered a hook");
    // The same request with the necessary rights is accepted.
    let mut client = registry.client_with(none(), certificate("admin", false)?)?;
    client.register(request()).await?;
    registry
        .client()?
        .deregister(v1::DeregisterRequest { name: name.clone(), namespace: String::new() })
        .await?;
    ensure!(hooks.get_opt(&name).await?.is_none(), "the hook is still registered");
    registry.end().await
}
