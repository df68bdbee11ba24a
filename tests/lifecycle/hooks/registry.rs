//! The author of a hook, who uses Podward's registry over gRPC.

use std::{collections::HashMap, net::SocketAddr};

use anyhow::{Context, Result};
use podward_e2e::{Fixture, HookAuthor, ServiceInstance, Trust};
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_support::{Cluster, ServiceKind};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

/// The audience of tokens for Podward.
const AUDIENCE: &str = "podward";

/// A client with or without a token.
pub(crate) type RegistryClient = HookRegistryClient<InterceptedService<Channel, RegistryToken>>;

/// The token of the client, if there is one.
#[derive(Clone, Default)]
pub(crate) struct RegistryToken(Option<MetadataValue<Ascii>>);

impl RegistryToken {
    pub(crate) fn new(token: &str) -> Result<Self> {
        let value = format!("Bearer {token}").parse().context("a token that can be sent")?;
        Ok(Self(Some(value)))
    }
}

impl Interceptor for RegistryToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// The author of a hook.
pub(crate) struct Registry {
    account: HookAuthor,
    callers: RegistryClients,
    /// The address of the first replica.
    first: SocketAddr,
}

impl Registry {
    pub(crate) async fn of(fixture: &Fixture) -> Result<Self> {
        let account = HookAuthor::make(fixture.client(), fixture.namespace()).await?;
        let bearer = RegistryToken::new(&account.token(Some(AUDIENCE)).await?)?;
        let (cluster, podward) = (fixture.cluster().clone(), fixture.podward()?);
        let controllers = podward.services(ServiceKind::LifecycleController);
        let first = controllers.first().context("there is no lifecycle-controller")?.serves_at()?;
        let first = cluster.reach(first).await?;
        let callers =
            RegistryClients { bearer, cluster, trust: podward.trust().await?, channels: HashMap::new() };
        Ok(Self { account, callers, first })
    }

    /// Returns a client of the first replica.
    pub(crate) fn client(&self) -> Result<RegistryClient> {
        self.client_with(self.callers.bearer.clone(), None)
    }

    /// Returns a client of the first replica with another token.
    pub(crate) fn client_with(
        &self,
        bearer: RegistryToken,
        identity: Option<Identity>,
    ) -> Result<RegistryClient> {
        let channel = channel(&self.callers.trust, self.first, identity)?;
        Ok(HookRegistryClient::with_interceptor(channel, bearer))
    }

    /// Returns clients of all replicas.
    pub(crate) fn callers(&self) -> RegistryClients {
        self.callers.clone()
    }

    /// Removes the author's rights.
    pub(crate) async fn end(&self) -> Result<()> {
        self.account.remove().await
    }
}

/// Clients by the address of the replica.
#[derive(Clone)]
pub(crate) struct RegistryClients {
    bearer: RegistryToken,
    cluster: Cluster,
    trust: Trust,
    channels: HashMap<SocketAddr, Channel>,
}

impl RegistryClients {
    /// Returns a client of this replica at its current address.
    pub(crate) async fn client_of(&mut self, service: &ServiceInstance) -> Result<RegistryClient> {
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
