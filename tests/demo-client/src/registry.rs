//! The kinds of service registries that a client can discover instances with.

use std::{fmt, sync::Arc, time::Duration};

use podward_registries::{
    Connection, Consul, ConsulOptions, Credentials, DirectDialer, Etcd, EtcdOptions, Eureka, EurekaOptions,
    Nacos, Registry, ZooKeeper, ZooKeeperLayout, ZooKeeperOptions,
};
use serde::{Deserialize, Serialize};

/// The longest time for a call of a registry.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The node of Consul's catalog that instances belong to, as that of the service-discovery-bridge.
const CONSUL_NODE: &str = "podward";
/// What begins the keys of etcd.
const ETCD_PREFIX: &str = "/services";

/// A kind of registry, with the layout of its entries.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[clap(rename_all = "lower")]
pub enum RegistryKind {
    /// Consul.
    Consul,
    /// ZooKeeper with the layout of Dubbo 2.
    Dubbo,
    /// etcd, with keys as those of Go's package `naming/endpoints`.
    Etcd,
    /// Eureka.
    Eureka,
    /// Nacos.
    Nacos,
    /// ZooKeeper with the layout of Curator, which Spring Cloud uses.
    ZooKeeper,
}

impl RegistryKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Consul, Self::Dubbo, Self::Etcd, Self::Eureka, Self::Nacos, Self::ZooKeeper];

    /// Returns the name on the command line and in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Consul => "consul",
            Self::Dubbo => "dubbo",
            Self::Etcd => "etcd",
            Self::Eureka => "eureka",
            Self::Nacos => "nacos",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// Returns a client of the registry at `addresses`. It connects when it is used.
    ///
    /// # Errors
    /// Fails with a message for people if an address is unusable.
    pub fn connect(self, addresses: &[String]) -> Result<Arc<dyn Registry>, String> {
        let connection = Connection {
            addresses: addresses.to_vec(),
            tls: None,
            credentials: Credentials::Anonymous,
            timeout: TIMEOUT,
            dialer: Arc::new(DirectDialer),
        };
        let zookeeper = |layout| {
            let options = ZooKeeperOptions { layout, base: String::new() };
            ZooKeeper::new(&connection, &options).map(shared)
        };
        match self {
            Self::Consul => {
                let options = ConsulOptions { node: CONSUL_NODE.to_owned(), ..ConsulOptions::default() };
                Consul::new(&connection, options).map(shared)
            }
            Self::Dubbo => zookeeper(ZooKeeperLayout::DubboInterfaces { protocol: "dubbo".to_owned() }),
            Self::Etcd => {
                let options = EtcdOptions { prefix: ETCD_PREFIX.to_owned(), ..EtcdOptions::default() };
                Etcd::new(&connection, &options).map(shared)
            }
            Self::Eureka => Eureka::new(&connection, EurekaOptions::default()).map(shared),
            Self::Nacos => Nacos::new(&connection).map(shared),
            Self::ZooKeeper => zookeeper(ZooKeeperLayout::Curator),
        }
    }
}

fn shared(registry: impl Registry + 'static) -> Arc<dyn Registry> {
    Arc::new(registry)
}

impl fmt::Display for RegistryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in RegistryKind::ALL {
            assert_eq!(RegistryKind::from_str(kind.as_str(), false), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!(RegistryKind::value_variants().len(), RegistryKind::ALL.len());
    }
}
