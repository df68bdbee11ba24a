//! Where a registry stores instances, apart from its addresses.

use super::{RegistryConnection, RegistryKind, ZooKeeperLayout};

impl RegistryConnection {
    /// Returns the kind of the registry, and in which part of it instances are stored, in words.
    ///
    /// Two connections to the same servers with different texts do not see each other's instances. Addresses are not part
    /// of it, because one registry may have several names.
    #[must_use]
    pub fn place(&self) -> String {
        let parts: Vec<String> = match self.kind {
            RegistryKind::Consul => {
                let consul = self.consul.clone().unwrap_or_default();
                [
                    ("node", Some(consul.node.unwrap_or_else(|| "podward".to_owned()))),
                    ("datacenter", consul.datacenter),
                    ("partition", consul.partition),
                ]
                .into_iter()
                .filter_map(|(name, value)| Some(format!("{name} {}", value?)))
                .collect()
            }
            RegistryKind::Etcd => {
                let etcd = self.etcd.clone().unwrap_or_default();
                match (etcd.template, etcd.prefix.unwrap_or_default().trim_end_matches('/')) {
                    (Some(template), _) => vec![format!("keys {}", template.key)],
                    (None, "") => Vec::new(),
                    (None, prefix) => vec![format!("prefix {prefix}")],
                }
            }
            RegistryKind::ZooKeeper => {
                let zookeeper = self.zookeeper.clone().unwrap_or_default();
                let base = zookeeper.base.unwrap_or_else(|| match zookeeper.layout {
                    ZooKeeperLayout::DubboInterfaces => "dubbo".to_owned(),
                    ZooKeeperLayout::Curator | ZooKeeperLayout::DubboApplications => "services".to_owned(),
                });
                vec![format!("{:?} below /{}", zookeeper.layout, base.trim_matches('/'))]
            }
            RegistryKind::Eureka | RegistryKind::Nacos | RegistryKind::Http => Vec::new(),
        };
        if parts.is_empty() { self.kind.to_string() } else { format!("{} ({})", self.kind, parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_what_separates_instances() {
        for (connection, place) in [
            (serde_json::json!({"kind": "Consul"}), "Consul (node podward)"),
            (
                serde_json::json!({"kind": "Consul", "consul": {"node": "a", "datacenter": "dc2", "partition": "p"}}),
                "Consul (node a, datacenter dc2, partition p)",
            ),
            (serde_json::json!({"kind": "Etcd", "etcd": {"prefix": "/"}}), "Etcd"),
            (serde_json::json!({"kind": "Etcd", "etcd": {"prefix": "shop/"}}), "Etcd (prefix shop)"),
            (
                serde_json::json!({"kind": "Etcd", "etcd": {"template": {"key": "${service}.rpc/${id}", "value": "{}"}}}),
                "Etcd (keys ${service}.rpc/${id})",
            ),
            (serde_json::json!({"kind": "ZooKeeper"}), "ZooKeeper (Curator below /services)"),
            (
                serde_json::json!({"kind": "ZooKeeper", "zookeeper": {"base": "/services/"}}),
                "ZooKeeper (Curator below /services)",
            ),
            (
                serde_json::json!({"kind": "ZooKeeper", "zookeeper": {"layout": "DubboInterfaces"}}),
                "ZooKeeper (DubboInterfaces below /dubbo)",
            ),
            (serde_json::json!({"kind": "Nacos"}), "Nacos"),
        ] {
            let mut connection = connection;
            connection["addresses"] = serde_json::json!(["a:1"]);
            let connection: RegistryConnection = serde_json::from_value(connection).unwrap();
            assert_eq!(connection.place(), place);
        }
    }
}
