//! Real servers of registries, for tests: each runs as a process on loopback, and ends with the test.
#![forbid(unsafe_code)]

mod certificates;
mod consul;
mod etcd;
mod eureka;
mod nacos;
mod process;
mod zookeeper;

pub use certificates::TestCertificates;
pub use consul::{ConsulServer, ConsulServerOptions};
pub use etcd::EtcdServer;
pub use eureka::{EurekaServer, EurekaServerOptions};
pub use nacos::{NacosServer, NacosServerOptions};
pub use zookeeper::{ZooKeeperServer, ZooKeeperServerOptions};
