//! The registries.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use podward_discovery::{RegistrySecrets, connect};
use podward_registries::{DirectDialer, Registry};
use registry_servers::{
    ConsulServer, ConsulServerOptions, EtcdServer, EurekaServer, NacosServer, NacosServerOptions,
    ZooKeeperServer, ZooKeeperServerOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A kind of registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegistryName {
    /// Consul.
    Consul,
    /// etcd.
    Etcd,
    /// Netflix's Eureka.
    Eureka,
    /// rnacos, which has the HTTP interface of Nacos 1.
    Nacos,
    /// ZooKeeper, with the layout of Curator.
    ZooKeeper,
}

impl RegistryName {
    /// All registries.
    pub const ALL: [Self; 5] = [Self::Consul, Self::Etcd, Self::Eureka, Self::Nacos, Self::ZooKeeper];

    /// Returns the word for it in command lines and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consul => "consul",
            Self::Etcd => "etcd",
            Self::Eureka => "eureka",
            Self::Nacos => "nacos",
            Self::ZooKeeper => "zookeeper",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Consul => "Consul",
            Self::Etcd => "Etcd",
            Self::Eureka => "Eureka",
            Self::Nacos => "Nacos",
            Self::ZooKeeper => "ZooKeeper",
        }
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

enum Process {
    Consul(ConsulServer),
    Etcd(EtcdServer),
    Eureka(EurekaServer),
    Nacos(NacosServer),
    ZooKeeper(ZooKeeperServer),
}

/// A running registry. It ends when this is dropped.
pub(super) struct RegistryServer {
    name: RegistryName,
    process: Process,
}

impl RegistryServer {
    pub(super) async fn start(name: RegistryName) -> Result<Self> {
        let process = match name {
            RegistryName::Consul => {
                Process::Consul(ConsulServer::start(ConsulServerOptions::default()).await?)
            }
            RegistryName::Etcd => Process::Etcd(EtcdServer::start(None).await?),
            RegistryName::Eureka => Process::Eureka(EurekaServer::start().await?),
            RegistryName::Nacos => Process::Nacos(NacosServer::start(NacosServerOptions::default()).await?),
            RegistryName::ZooKeeper => {
                Process::ZooKeeper(ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?)
            }
        };
        Ok(Self { name, process })
    }

    /// Returns the address for clients.
    pub(super) fn address(&self) -> String {
        match &self.process {
            Process::Consul(server) => server.url(),
            Process::Etcd(server) => server.address(),
            Process::Eureka(server) => server.url(),
            Process::Nacos(server) => server.url(),
            Process::ZooKeeper(server) => server.address(),
        }
    }

    /// Kills the server and starts it again, without its state.
    pub(super) async fn restart_empty(&mut self) -> Result<()> {
        let process = match &mut self.process {
            Process::Consul(server) => &mut server.process,
            Process::Etcd(server) => &mut server.process,
            Process::Eureka(server) => &mut server.process,
            Process::Nacos(server) => &mut server.process,
            Process::ZooKeeper(server) => &mut server.process,
        };
        process.restart_empty().await
    }

    /// Returns the connection for a binding.
    pub(super) fn connection(&self) -> Value {
        let mut connection = json!({"kind": self.name.kind(), "addresses": [self.address()]});
        if self.name == RegistryName::Etcd {
            connection["etcd"] = json!({"prefix": "/services"});
        }
        connection
    }

    /// Returns a client of its own, as the bridge makes it.
    pub(super) fn client(&self) -> Result<Arc<dyn Registry>> {
        let connection = serde_json::from_value(self.connection()).context("describe the connection")?;
        let dialer = Arc::new(DirectDialer);
        connect(&connection, RegistrySecrets::default(), dialer, "connection")
            .map_err(|error| anyhow!("{}: {error}", self.name))
    }
}
