//! Servers of registries, for tests: each real one runs as a process on loopback, and ends with the test.
#![forbid(unsafe_code)]

mod certificates;
mod consul;
mod etcd;
mod eureka;
mod invented;
mod nacos;
mod process;
mod running;
mod zookeeper;

pub use certificates::TestCertificates;
pub use consul::{ConsulServer, ConsulServerOptions, ConsulToken};
pub use etcd::EtcdServer;
pub use eureka::{EurekaServer, EurekaServerOptions};
pub use invented::{InventedServer, InventedState};
pub use nacos::{NacosServer, NacosServerOptions};
pub use running::RunningServer;
pub use zookeeper::{ZooKeeperServer, ZooKeeperServerOptions};
