//! The author of a hook, who speaks with Podward's registry over gRPC.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use podward_e2e::{Account, Scene};
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_support::{Cluster, Kind, Service};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

/// The audience of tokens for Podward.
const AUDIENCE: &str = "podward";

/// A client that may or may not show a token.
pub(super) type Client = HookRegistryClient<InterceptedService<Channel, Bearer>>;

/// The token that is shown, if there is one.
#[derive(Clone, Default)]
pub(super) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    pub(super) fn new(token: &str) -> Result<Self> {
        let value = format!("Bearer {token}").parse().context("a token that can be sent")?;
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Somebody who may register hooks.
pub(super) struct Registry {
    account: Account,
    bearer: Bearer,
    cluster: Cluster,
    /// The first replica.
    first: SocketAddr,
}

impl Registry {
    pub(super) async fn of(scene: &Scene) -> Result<Self> {
        let account = Account::make(scene.client(), scene.namespace()).await?;
        let bearer = Bearer::new(&account.token(Some(AUDIENCE)).await?)?;
        let cluster = scene.cluster().clone();
        let controllers = scene.podward()?.services(Kind::LifecycleController);
        let first = controllers.first().context("there is no lifecycle-controller")?;
        let first = cluster.reach(first.serves_at()).await?;
        Ok(Self { account, bearer, cluster, first })
    }

    /// A client of the first replica.
    pub(super) fn client(&self) -> Result<Client> {
        self.client_with(self.bearer.clone(), None)
    }

    /// The same for somebody else.
    pub(super) fn client_with(&self, bearer: Bearer, identity: Option<Identity>) -> Result<Client> {
        Ok(HookRegistryClient::with_interceptor(channel(&self.cluster, self.first, identity)?, bearer))
    }

    /// A client of this replica.
    pub(super) async fn client_of(&self, service: &Service) -> Result<Client> {
        let at = self.cluster.reach(service.serves_at()).await?;
        Ok(HookRegistryClient::with_interceptor(channel(&self.cluster, at, None)?, self.bearer.clone()))
    }

    /// Takes the author's rights away.
    pub(super) async fn end(&self) -> Result<()> {
        self.account.remove().await
    }
}

fn channel(cluster: &Cluster, at: SocketAddr, identity: Option<Identity>) -> Result<Channel> {
    let ca = Certificate::from_pem(cluster.server_ca());
    let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
    if let Some(identity) = identity {
        tls = tls.identity(identity);
    }
    let endpoint = Endpoint::from_shared(format!("https://{at}")).context("an address")?;
    Ok(endpoint.tls_config(tls).context("use the certificates")?.connect_lazy())
}
