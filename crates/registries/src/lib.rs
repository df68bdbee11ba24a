//! Clients of service registries: one file for each kind of registry, behind the trait [`Registry`].
//!
//! A registry stores [instances](Instance) of services. A client reads them at each of the registry's addresses, and
//! writes [changes](Change). It decides nothing: which instances should exist, what may be removed and when, and whose an
//! instance is, is decided by its caller, who finds the [owner](Owner) in the metadata of each instance.
//!
//! Every call is one attempt: callers repeat what failed. A call whose response is lost has an unknown result, so callers
//! read back what they wrote.
#![forbid(unsafe_code)]

mod connection;
mod consul;
mod detail;
mod dialer;
mod error;
mod etcd;
mod eureka;
mod http;
mod http_client;
mod instance;
mod limits;
mod listed;
mod nacos;
mod owner;
mod registry;
mod zookeeper;

pub use connection::{Connection, Credentials, TlsOptions};
pub use consul::{Consul, ConsulOptions};
pub use dialer::{DialFailure, DialProblem, Dialer, DirectDialer};
pub use error::{RegistryError, RegistryErrorKind};
pub use etcd::{Etcd, EtcdOptions, EtcdTemplate};
pub use eureka::{Eureka, EurekaOptions};
pub use http::{HttpCall, HttpListing, HttpOptions, HttpReading, HttpRegistry, HttpStatuses};
pub use instance::{Instance, InstanceVersion, ServiceKey};
pub use listed::{Listed, Unreadable};
pub use nacos::Nacos;
pub use owner::Owner;
pub use registry::{Capabilities, Change, MayChange, Registry};
pub use zookeeper::{ZooKeeper, ZooKeeperLayout, ZooKeeperOptions};
