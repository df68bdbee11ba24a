//! How a service registry is reached: part of `DiscoveryBinding` and `ClusterRegistry`.

mod check;
mod http;
mod place;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::known_format;

pub use http::{HttpCall, HttpConnection, HttpListing, HttpReading, HttpStatuses};

/// A connection to a service registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryConnection {
    /// The kind of the registry.
    pub kind: RegistryKind,
    /// The addresses of all servers of the registry. Podward writes to one that answers, and a change is complete when
    /// every address shows it. Consul: `http://host:8500`. Etcd: `host:2379`. ZooKeeper: `host:2181`. Nacos:
    /// `http://host:8848/nacos`. Eureka: `http://host:8761/eureka` for Spring Cloud, `http://host:8080/eureka/v2` for
    /// Netflix. Http: a URL, which the paths of `http` follow.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 300)))]
    pub addresses: Vec<String>,
    /// TLS. When not set, the connections are not encrypted, unless the addresses are `https` URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RegistryTls>,
    /// The Secret with the credentials. It has the key `token`, or the keys `username` and `password`. The Secret of a
    /// DiscoveryBinding is in its namespace, that of a ClusterRegistry in Podward's. When not set, Podward sends no
    /// credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret: Option<String>,
    /// The longest time for one call, in seconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 30), transform = known_format)]
    pub timeout_seconds: u32,
    /// How much a replica of the service-discovery-bridge may ask of the registry. All bindings of a ClusterRegistry share
    /// it.
    #[serde(default)]
    pub limits: RegistryLimits,
    /// What is special about a Consul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul: Option<ConsulConnection>,
    /// What is special about an etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdConnection>,
    /// What is special about a Eureka.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eureka: Option<EurekaConnection>,
    /// What is special about a ZooKeeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zookeeper: Option<ZooKeeperConnection>,
    /// The calls of a registry with an HTTP interface of its own. Needed for the kind Http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConnection>,
}

/// A kind of service registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum RegistryKind {
    #[default]
    Consul,
    Etcd,
    Eureka,
    Nacos,
    ZooKeeper,
    Http,
}

impl fmt::Display for RegistryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How much one replica of the service-discovery-bridge may ask of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryLimits {
    /// The largest number of changed instances per second. Heartbeats do not count.
    #[serde(default = "default_changes")]
    #[schemars(range(min = 1, max = 10_000), transform = known_format)]
    pub changes_per_second: u32,
    /// The largest number of calls at the same time: reads, changes and heartbeats.
    #[serde(default = "default_calls")]
    #[schemars(range(min = 1, max = 256), transform = known_format)]
    pub concurrent_calls: u32,
}

impl Default for RegistryLimits {
    fn default() -> Self {
        Self { changes_per_second: default_changes(), concurrent_calls: default_calls() }
    }
}

/// How the servers of a registry are verified, and the certificate of Podward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryTls {
    /// PEM certificates of the authorities that may issue the servers' certificates. When not set, the authorities of the
    /// system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144), regex(pattern = "-----BEGIN CERTIFICATE-----"))]
    pub ca_certificates: Option<String>,
    /// The Secret with the certificate and key that Podward connects with: the keys `tls.crt` and `tls.key`. It is in the
    /// same namespace as `credentialsSecret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub client_secret: Option<String>,
}

/// What is special about a Consul.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsulConnection {
    /// The name of the node in the catalog that the instances belong to. It must not be the name of a node with an agent:
    /// the agent would remove the instances. When not set, `podward`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node: Option<String>,
    /// The datacenter. When not set, that of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub datacenter: Option<String>,
    /// The admin partition of Consul Enterprise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub partition: Option<String>,
}

/// What is special about an etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdConnection {
    /// What begins all keys. The key of an instance is `<prefix>/<service>/<id>`, and its value the JSON of go's
    /// `naming/endpoints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub prefix: Option<String>,
    /// Another format of keys and values. It must not be set with `prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<EtcdTemplate>,
    /// After this time without a bridge, in seconds, etcd deletes the instances. When not set, they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 86_400), transform = known_format)]
    pub lease_seconds: Option<u32>,
}

/// A format of keys and values in an etcd. The fields are those of `http`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdTemplate {
    /// The whole key. Its first field is `${service}`, which a text follows. After it come `${id}`, or `${host}` and
    /// `${port}`.
    #[schemars(length(min = 1, max = 1000))]
    pub key: String,
    /// The value: JSON whose strings are templates, as the bodies of `http`. It contains `"${metadata}"`, which says who has
    /// registered an instance, and host and port unless the key does.
    #[schemars(length(min = 1, max = 16_384))]
    pub value: String,
}

/// What is special about a Eureka.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EurekaConnection {
    /// The interval of heartbeats for each instance, in seconds.
    #[serde(default = "default_renewal")]
    #[schemars(range(min = 5, max = 300), transform = known_format)]
    pub renewal_seconds: u32,
    /// The time after which Eureka removes an instance without heartbeats, in seconds. At least three times
    /// `renewalSeconds`.
    #[serde(default = "default_lease")]
    #[schemars(range(min = 15, max = 3600), transform = known_format)]
    pub lease_seconds: u32,
    /// How long the servers answer lists from their cache, in seconds: `responseCacheUpdateIntervalMs` of Eureka. 0 if
    /// `shouldUseReadOnlyResponseCache` is false.
    #[serde(default = "default_response_cache")]
    #[schemars(range(max = 3600), transform = known_format)]
    pub response_cache_seconds: u32,
}

/// What is special about a ZooKeeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZooKeeperConnection {
    /// How instances are stored.
    #[serde(default)]
    pub layout: ZooKeeperLayout,
    /// The path of the node above all services. When not set, `/services`, and `/dubbo` for the layout DubboInterfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub base: Option<String>,
    /// The protocol of the URLs that Podward registers, with the layout DubboInterfaces: `dubbo` or `tri`. When not set,
    /// `dubbo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-zA-Z0-9]+$"))]
    pub protocol: Option<String>,
}

/// How instances are stored in ZooKeeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ZooKeeperLayout {
    /// Curator's service discovery, which Spring Cloud uses.
    #[default]
    Curator,
    /// Dubbo 2, and Dubbo 3 with interfaces. The name of a service is that of an interface.
    DubboInterfaces,
    /// Dubbo 3.1 or later with applications. Only the mode Steer is possible.
    DubboApplications,
}

fn default_changes() -> u32 {
    1000
}

fn default_calls() -> u32 {
    16
}

fn default_timeout() -> u32 {
    5
}

fn default_renewal() -> u32 {
    30
}

fn default_lease() -> u32 {
    90
}

fn default_response_cache() -> u32 {
    30
}
