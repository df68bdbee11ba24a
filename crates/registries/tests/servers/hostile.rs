//! Servers of somebody who may write DiscoveryBindings, and wants to end the bridge or to read through it.

mod connecting;
mod hidden;
mod login;
mod nodes;
mod size;
mod stubs;
mod values;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use podward_registries::{
    Connection, Consul, ConsulOptions, Etcd, EtcdOptions, Eureka, EurekaOptions, HttpCall, HttpOptions,
    HttpReading, HttpRegistry, Nacos, Registry, RegistryError, ZooKeeper, ZooKeeperOptions,
};

use crate::common::service;

/// Clients, with the names of their kinds.
pub(crate) type Clients = Vec<(&'static str, Arc<dyn Registry>)>;

/// Returns the clients of all kinds over HTTP.
pub(crate) fn over_http(connection: &Connection) -> Result<Clients> {
    let consul = ConsulOptions { node: "podward".to_owned(), ..ConsulOptions::default() };
    let call =
        || Some(HttpCall { method: "PUT".to_owned(), path: "/${id}".to_owned(), ..HttpCall::default() });
    let fields = [("host", "/host"), ("port", "/port"), ("metadata", "/metadata")];
    let own = HttpOptions {
        register: call(),
        deregister: call(),
        read: Some(HttpReading {
            path: "/${service}".to_owned(),
            fields: fields.map(|(name, at)| (name.to_owned(), at.to_owned())).into(),
            ..HttpReading::default()
        }),
        ..HttpOptions::default()
    };
    let made = || -> Result<Clients, String> {
        Ok(vec![
            ("Consul", Arc::new(Consul::new(connection, consul)?)),
            ("Eureka", Arc::new(Eureka::new(connection, EurekaOptions::default())?)),
            ("Nacos", Arc::new(Nacos::new(connection)?)),
            ("Http", Arc::new(HttpRegistry::new(connection, &own)?)),
        ])
    };
    made().map_err(anyhow::Error::msg)
}

fn etcd(connection: &Connection) -> Result<Etcd> {
    Etcd::new(connection, &EtcdOptions { prefix: "/s".to_owned(), ..EtcdOptions::default() })
        .map_err(anyhow::Error::msg)
}

fn zookeeper(connection: &Connection) -> Result<ZooKeeper> {
    ZooKeeper::new(connection, &ZooKeeperOptions::default()).map_err(anyhow::Error::msg)
}

/// Returns the error of reading a service.
async fn read_fails(registry: &dyn Registry) -> Result<RegistryError> {
    registry.instances(0, &service("web")).await.err().context("the service was read")
}
