//! Instances of Nacos, and Podward's.

use crate::error::{RegistryError, RegistryErrorKind};
use crate::instance::Instance;
use crate::limits::Texts;

use super::api::{CLUSTER, Parameters, or_default};
use super::wire::StoredInstance;

/// An instance as it is stored, whether clients see it, and whether it is disabled.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) stored: StoredInstance,
    pub(super) is_visible: bool,
    pub(super) is_disabled: bool,
}

pub(super) fn cluster(instance: &StoredInstance) -> &str {
    or_default(&instance.cluster_name, CLUSTER)
}

/// By what Nacos knows an instance.
pub(super) fn key(instance: &StoredInstance) -> (&str, u16, &str) {
    (&instance.ip, instance.port, cluster(instance))
}

/// The same of an instance that was not read.
pub(super) fn key_of(instance: &Instance) -> (&str, u16, &str) {
    (&instance.host, instance.port, or_default(&instance.cluster, CLUSTER))
}

impl From<Found> for Instance {
    fn from(Found { stored, is_visible, is_disabled }: Found) -> Self {
        Self {
            id: format!("{}:{}", stored.ip, stored.port),
            host: stored.ip,
            port: stored.port,
            cluster: if stored.cluster_name == CLUSTER { String::new() } else { stored.cluster_name },
            weight: stored.weight,
            metadata: stored.metadata.0,
            in_service: is_visible,
            may_return: !is_visible && !is_disabled,
            version: None,
        }
    }
}

pub(super) fn wire_of(instance: &Instance) -> StoredInstance {
    StoredInstance {
        ip: instance.host.clone(),
        port: instance.port,
        cluster_name: instance.cluster.clone(),
        weight: instance.weight,
        healthy: true,
        enabled: instance.in_service,
        ephemeral: false,
        metadata: Texts(instance.metadata.clone()),
    }
}

/// Returns what a change says of an instance.
pub(super) fn parameters_of(instance: &StoredInstance) -> Result<Parameters, RegistryError> {
    let metadata = serde_json::to_string(&instance.metadata.0).map_err(|error| RegistryError {
        doing: "write the metadata of an instance".to_owned(),
        address: "no address".to_owned(),
        reason: error.to_string(),
        kind: RegistryErrorKind::Rejected,
    })?;
    Ok(vec![
        ("ip", instance.ip.clone()),
        ("port", instance.port.to_string()),
        ("clusterName", cluster(instance).to_owned()),
        ("weight", instance.weight.to_string()),
        ("healthy", "true".to_owned()),
        ("enabled", instance.enabled.to_string()),
        // Nacos would look for an ephemeral instance, and leave the persistent one as it is.
        ("ephemeral", instance.ephemeral.to_string()),
        ("metadata", metadata),
    ])
}
