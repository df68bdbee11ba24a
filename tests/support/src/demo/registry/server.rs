//! Real servers of registries, reachable from pods.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use demo_client::RegistryKind;
use podward_registries::Registry;
use registry_servers::{
    ConsulServer, ConsulServerOptions, EtcdServer, EurekaServer, EurekaServerOptions, NacosServer,
    NacosServerOptions, ZooKeeperServer, ZooKeeperServerOptions,
};
use serde_json::{Value, json};

use crate::{Cluster, ReachableServer};

/// A server of a registry on this machine, which pods and clients in the cluster reach. It ends when this is dropped.
#[derive(Debug)]
pub struct RegistryServer {
    kind: RegistryKind,
    /// The address in the network of this process.
    local: String,
    /// The address in the cluster.
    address: String,
    /// How long lists of the server may be older than what it stores.
    list_age: Duration,
    _server: ServerProcess,
    _reachable: ReachableServer,
}

#[derive(Debug)]
enum ServerProcess {
    Consul { _server: ConsulServer },
    Etcd { _server: EtcdServer },
    Eureka { _server: EurekaServer },
    Nacos { _server: NacosServer },
    ZooKeeper { _server: ZooKeeperServer },
}

impl RegistryServer {
    /// Starts a server, and waits until it answers. Eureka answers lists from a cache of the age `list_age`.
    ///
    /// # Errors
    /// Fails if its program is not built, or it does not become ready.
    pub async fn start(cluster: &Cluster, kind: RegistryKind, list_age: Duration) -> Result<Self> {
        let (local, server) = match kind {
            RegistryKind::Consul => {
                let server = ConsulServer::start(ConsulServerOptions::default()).await?;
                (server.url(), ServerProcess::Consul { _server: server })
            }
            RegistryKind::Etcd => {
                let server = EtcdServer::start(None).await?;
                (server.address(), ServerProcess::Etcd { _server: server })
            }
            RegistryKind::Eureka => {
                let options = EurekaServerOptions { response_cache: Some(list_age) };
                let server = EurekaServer::start_with(options).await?;
                (server.url(), ServerProcess::Eureka { _server: server })
            }
            RegistryKind::Nacos => {
                let server = NacosServer::start(NacosServerOptions::default()).await?;
                (server.url(), ServerProcess::Nacos { _server: server })
            }
            RegistryKind::Dubbo | RegistryKind::ZooKeeper => {
                let server = ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?;
                (server.address(), ServerProcess::ZooKeeper { _server: server })
            }
        };
        let ip = cluster.service_address();
        let reachable = ReachableServer::new(cluster, ip, &local).await?;
        Ok(Self {
            kind,
            address: local.replacen("127.0.0.1", &ip.to_string(), 1),
            local,
            list_age: if kind == RegistryKind::Eureka { list_age } else { Duration::ZERO },
            _server: server,
            _reachable: reachable,
        })
    }

    /// Returns the kind of the registry.
    #[must_use]
    pub fn kind(&self) -> RegistryKind {
        self.kind
    }

    /// Returns its addresses in the cluster.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        vec![self.address.clone()]
    }

    /// Returns how long lists of the server may be older than what it stores.
    #[must_use]
    pub fn list_age(&self) -> Duration {
        self.list_age
    }

    /// Returns a client for this process.
    ///
    /// # Errors
    /// Fails if there is none for the address.
    pub fn client(&self) -> Result<Arc<dyn Registry>> {
        self.kind.connect(std::slice::from_ref(&self.local)).map_err(|problem| anyhow!(problem))
    }

    /// Returns the connection of a DiscoveryBinding.
    pub(super) fn connection(&self) -> Value {
        let addresses = self.addresses();
        match self.kind {
            RegistryKind::Consul => json!({"kind": "Consul", "addresses": addresses}),
            RegistryKind::Dubbo => json!({
                "kind": "ZooKeeper", "addresses": addresses, "zookeeper": {"layout": "DubboInterfaces"},
            }),
            RegistryKind::Etcd => {
                json!({"kind": "Etcd", "addresses": addresses, "etcd": {"prefix": "/services"}})
            }
            RegistryKind::Eureka => json!({
                "kind": "Eureka", "addresses": addresses,
                "eureka": {"responseCacheSeconds": self.list_age.as_secs()},
            }),
            RegistryKind::Nacos => json!({"kind": "Nacos", "addresses": addresses}),
            RegistryKind::ZooKeeper => json!({"kind": "ZooKeeper", "addresses": addresses}),
        }
    }
}
