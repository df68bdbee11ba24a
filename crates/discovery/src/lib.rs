//! From a [`RegistryConnection`] to a client of the registry. The validating-webhook and the service-discovery-bridge share
//! it, so that the bridge can use every connection that was admitted.
#![forbid(unsafe_code)]

mod http;
mod secrets;
mod zookeeper;

use std::sync::Arc;
use std::time::Duration;

use podward_api::InvalidField;
use podward_api::discovery_binding::{BindingMode, Template, parse_weight};
use podward_api::registry_connection::{RegistryConnection, RegistryKind};
use podward_registries::{
    Connection, Consul, ConsulOptions, Dialer, Etcd, EtcdOptions, EtcdTemplate, Eureka, EurekaOptions,
    HttpRegistry, Nacos, Registry, TlsOptions, ZooKeeper,
};

pub use secrets::RegistrySecrets;

/// The name of the node in Consul's catalog when a connection names none.
const CONSUL_NODE: &str = "podward";

/// Returns a client of a registry. It connects when it is used. `field` is the path of the connection in its resource.
///
/// # Errors
/// Fails if the connection is invalid.
pub fn connect(
    connection: &RegistryConnection,
    secrets: RegistrySecrets,
    dialer: Arc<dyn Dialer>,
    field: &str,
) -> Result<Arc<dyn Registry>, InvalidField> {
    connection.check(field)?;
    let tls = connection
        .tls
        .as_ref()
        .map(|tls| TlsOptions { authorities: tls.ca_certificates.clone(), identity: secrets.identity });
    let common = Connection {
        addresses: connection.addresses.clone(),
        tls,
        credentials: secrets.credentials,
        timeout: Duration::from_secs(connection.timeout_seconds.into()),
        dialer,
    };
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let client: Result<Arc<dyn Registry>, String> = match connection.kind {
        RegistryKind::Consul => {
            let consul = connection.consul.clone().unwrap_or_default();
            let options = ConsulOptions {
                node: consul.node.unwrap_or_else(|| CONSUL_NODE.to_owned()),
                datacenter: consul.datacenter.unwrap_or_default(),
                partition: consul.partition.unwrap_or_default(),
            };
            Consul::new(&common, options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        RegistryKind::Etcd => {
            let etcd = connection.etcd.clone().unwrap_or_default();
            let options = EtcdOptions {
                prefix: etcd.prefix.unwrap_or_default(),
                template: etcd
                    .template
                    .map(|template| EtcdTemplate { key: template.key, value: template.value }),
                lease: etcd.lease_seconds.map(seconds),
            };
            let client = Etcd::new(&common, &options).map(|client| Arc::new(client) as Arc<dyn Registry>);
            client.map_err(|problem| format!("etcd: {problem}"))
        }
        RegistryKind::Eureka => {
            let options =
                connection.eureka.as_ref().map_or_else(EurekaOptions::default, |eureka| EurekaOptions {
                    renewal: seconds(eureka.renewal_seconds),
                    lease: seconds(eureka.lease_seconds),
                    response_cache: seconds(eureka.response_cache_seconds),
                });
            Eureka::new(&common, options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        RegistryKind::Nacos => Nacos::new(&common).map(|client| Arc::new(client) as Arc<dyn Registry>),
        RegistryKind::ZooKeeper => {
            let options = zookeeper::options(connection.zookeeper.clone().unwrap_or_default());
            ZooKeeper::new(&common, &options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
        RegistryKind::Http => {
            let options = http::options(connection.http.clone().unwrap_or_default());
            HttpRegistry::new(&common, &options).map(|client| Arc::new(client) as Arc<dyn Registry>)
        }
    };
    client.map_err(|problem| InvalidField { field: field.to_owned(), problem })
}

/// Checks that a registry can do what the mode of a binding needs.
///
/// # Errors
/// Fails if it cannot.
pub fn check_mode(
    mode: BindingMode,
    kind: RegistryKind,
    registry: &dyn Registry,
) -> Result<(), InvalidField> {
    let capabilities = registry.capabilities();
    let problem = match mode {
        BindingMode::Own if !capabilities.own && kind == RegistryKind::Http => {
            "Own needs the calls register and deregister of the connection".to_owned()
        }
        BindingMode::Steer if kind == RegistryKind::Http && !(capabilities.steer && registry.can_read()) => {
            "Steer needs the calls takeOutOfService, putIntoService and read of the connection".to_owned()
        }
        BindingMode::Own if !capabilities.own => format!("Own is not possible with {kind}; use Steer"),
        BindingMode::Steer if !capabilities.steer => format!(
            "Steer is not possible with {kind}: Podward cannot take an instance out of service that the application \
             registered; use Own, and switch off the registration in the application"
        ),
        _ => return Ok(()),
    };
    Err(InvalidField { field: "spec.mode".to_owned(), problem })
}

/// Checks that a registry can store the weight of a binding, if it is the same for all pods.
///
/// # Errors
/// Fails if it cannot.
pub fn check_weight(weight: &str, registry: &dyn Registry) -> Result<(), InvalidField> {
    let template = Template::parse(weight).map_err(|error| error.to_string());
    let checked = template.and_then(|template| match template.literal() {
        Some(text) => registry.check_weight(parse_weight(text)?),
        None => Ok(()),
    });
    checked.map_err(|problem| InvalidField { field: "spec.weight".to_owned(), problem })
}
