//! The registry of hooks as a hook system in the cluster uses it: through the Service, with the authority from its
//! Secret.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use podward_e2e::{Fixture, HookAuthor};
use podward_proto::v1::{
    self, DeregisterRequest, Phase, RegisterRequest, hook::Connection,
    hook_registry_client::HookRegistryClient,
};
use podward_support::Installation;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

const NAMESPACE: &str = Installation::NAMESPACE;
const PORT: u16 = 9444;

/// A hook is registered, changed and removed.
pub(crate) async fn a_hook_comes_and_goes(fixture: &Fixture) -> Result<()> {
    let account = HookAuthor::make(fixture.client(), fixture.namespace()).await?;
    let token = format!("Bearer {}", account.token(Some("podward")).await?);
    let token: MetadataValue<Ascii> = token.parse().context("a token that can be sent")?;
    let mut client =
        HookRegistryClient::with_interceptor(channel(fixture).await?, move |mut request: Request<()>| {
            request.metadata_mut().insert("authorization", token.clone());
            Ok(request)
        });
    for order in [0, 1] {
        let hook = Some(hook(fixture, order));
        client.register(RegisterRequest { hook }).await.context("register a hook")?;
    }
    let name = fixture.namespace().to_owned();
    client.deregister(DeregisterRequest { name, namespace: String::new() }).await.context("remove a hook")?;
    account.remove().await
}

/// It selects no pod.
fn hook(fixture: &Fixture, order: i32) -> v1::Hook {
    let nobody = [("example.com/for".to_owned(), "nobody".to_owned())].into();
    v1::Hook {
        name: fixture.namespace().to_owned(),
        pod_selector: Some(v1::LabelSelector { match_labels: nobody, match_expressions: Vec::new() }),
        phases: vec![Phase::Prepare.into()],
        connection: Some(Connection::Attachment(v1::Attachment::default())),
        order,
        ..v1::Hook::default()
    }
}

async fn channel(fixture: &Fixture) -> Result<Channel> {
    let services: Api<Service> = Api::namespaced(fixture.client(), NAMESPACE);
    let service = services.get("lifecycle-controller").await.context("read the Service")?;
    let address = service.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
    let address = SocketAddr::new(address.parse().context("understand the Service's address")?, PORT);
    let at = fixture.cluster().reach(address).await?;
    let authority = fixture.installation()?.authority().await?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority))
        .domain_name(format!("lifecycle-controller.{NAMESPACE}.svc"));
    let endpoint = Endpoint::from_shared(format!("https://{at}")).context("an address")?;
    Ok(endpoint.tls_config(tls).context("use the authority")?.connect_lazy())
}
