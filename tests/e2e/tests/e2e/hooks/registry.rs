//! The author of a hook, who speaks with Podward's registry over gRPC.

use std::{collections::HashMap, net::SocketAddr};

use anyhow::{Context, Result};
use podward_e2e::{Account, Scene, Service, Trust};
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_support::{Cluster, Kind};
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
    callers: Callers,
    /// The first replica.
    first: SocketAddr,
}

impl Registry {
    pub(super) async fn of(scene: &Scene) -> Result<Self> {
        let account = Account::make(scene.client(), scene.namespace()).await?;
        let bearer = Bearer::new(&account.token(Some(AUDIENCE)).await?)?;
        let (cluster, podward) = (scene.cluster().clone(), scene.podward()?);
        let controllers = podward.services(Kind::LifecycleController);
        let first = controllers.first().context("there is no lifecycle-controller")?.serves_at()?;
        let first = cluster.reach(first).await?;
        let callers = Callers { bearer, cluster, trust: podward.trust().await?, channels: HashMap::new() };
        Ok(Self { account, callers, first })
    }

    /// A client of the first replica.
    pub(super) fn client(&self) -> Result<Client> {
        self.client_with(self.callers.bearer.clone(), None)
    }

    /// The same for somebody else.
    pub(super) fn client_with(&self, bearer: Bearer, identity: Option<Identity>) -> Result<Client> {
        let channel = channel(&self.callers.trust, self.first, identity)?;
        Ok(HookRegistryClient::with_interceptor(channel, bearer))
    }

    /// Clients of any replica.
    pub(super) fn callers(&self) -> Callers {
        self.callers.clone()
    }

    /// Takes the author's rights away.
    pub(super) async fn end(&self) -> Result<()> {
        self.account.remove().await
    }
}

/// Clients by the address that they speak with.
#[derive(Clone)]
pub(super) struct Callers {
    bearer: Bearer,
    cluster: Cluster,
    trust: Trust,
    channels: HashMap<SocketAddr, Channel>,
}

impl Callers {
    /// A client of this replica, where it is now.
    pub(super) async fn client_of(&mut self, service: &Service) -> Result<Client> {
        let address = service.serves_at()?;
        let channel = match self.channels.get(&address) {
            Some(channel) => channel.clone(),
            None => {
                let made = channel(&self.trust, self.cluster.reach(address).await?, None)?;
                self.channels.insert(address, made.clone());
                made
            }
        };
        Ok(HookRegistryClient::with_interceptor(channel, self.bearer.clone()))
    }
}

fn channel(trust: &Trust, at: SocketAddr, identity: Option<Identity>) -> Result<Channel> {
    let ca = Certificate::from_pem(&trust.ca);
    let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name(&trust.server_name);
    if let Some(identity) = identity {
        tls = tls.identity(identity);
    }
    let endpoint = Endpoint::from_shared(format!("https://{at}")).context("an address")?;
    Ok(endpoint.tls_config(tls).context("use the certificates")?.connect_lazy())
}
