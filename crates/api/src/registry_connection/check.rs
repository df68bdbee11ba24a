//! Validation of a connection.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::invalid_field::{InvalidField, invalid};

use super::{RegistryConnection, RegistryKind, ZooKeeperLayout};

/// The largest timeout, in seconds.
const MAX_TIMEOUT_SECONDS: u32 = 30;

impl RegistryConnection {
    /// Checks the connection, except what only the client of the registry knows. `field` is its path in the resource.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self, field: &str) -> Result<(), InvalidField> {
        if self.addresses.is_empty() || self.addresses.len() > 16 {
            return invalid(format!("{field}.addresses"), "must contain 1 to 16 addresses");
        }
        for (index, address) in self.addresses.iter().enumerate() {
            let field = format!("{field}.addresses[{index}]");
            if address.contains('@') {
                return invalid(field, "contains '@': put the credentials into a Secret (credentialsSecret)");
            }
            let is_url = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
            match self.kind {
                RegistryKind::Etcd | RegistryKind::ZooKeeper
                    if address.contains('/') || !address.contains(':') =>
                {
                    return invalid(field, "is not of the form host:port");
                }
                RegistryKind::Consul | RegistryKind::Eureka | RegistryKind::Nacos | RegistryKind::Http
                    if !is_url =>
                {
                    return invalid(field, "is not a URL that begins with http:// or https://");
                }
                _ => {}
            }
            if self.addresses[..index].contains(address) {
                return invalid(field, "is listed twice");
            }
        }
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&self.timeout_seconds) {
            let problem =
                format!("{} s is not between 1 s and {MAX_TIMEOUT_SECONDS} s", self.timeout_seconds);
            return invalid(format!("{field}.timeoutSeconds"), problem);
        }
        for (name, value, most) in [
            ("changesPerSecond", self.limits.changes_per_second, 10_000),
            ("concurrentCalls", self.limits.concurrent_calls, 256),
        ] {
            if !(1..=most).contains(&value) {
                return invalid(
                    format!("{field}.limits.{name}"),
                    format!("{value} is not between 1 and {most}"),
                );
            }
        }
        self.check_tls(field)?;
        self.check_kind(field)
    }

    fn check_tls(&self, field: &str) -> Result<(), InvalidField> {
        let Some(tls) = &self.tls else { return Ok(()) };
        if let Some(http) = self.addresses.iter().find(|address| address.starts_with("http://")) {
            return invalid(
                format!("{field}.tls"),
                format!("the address {http} is not encrypted; use https"),
            );
        }
        let Some(pem) = &tls.ca_certificates else { return Ok(()) };
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        match certificates {
            Ok(found) if !found.is_empty() => Ok(()),
            Ok(_) => invalid(format!("{field}.tls.caCertificates"), "contains no certificate in PEM"),
            Err(error) => {
                invalid(format!("{field}.tls.caCertificates"), format!("is not valid PEM: {error}"))
            }
        }
    }

    fn check_kind(&self, field: &str) -> Result<(), InvalidField> {
        let parts = [
            ("consul", self.consul.is_some(), RegistryKind::Consul),
            ("etcd", self.etcd.is_some(), RegistryKind::Etcd),
            ("eureka", self.eureka.is_some(), RegistryKind::Eureka),
            ("zookeeper", self.zookeeper.is_some(), RegistryKind::ZooKeeper),
            ("http", self.http.is_some(), RegistryKind::Http),
        ];
        for (name, is_set, kind) in parts {
            if is_set && kind != self.kind {
                let problem = format!("must not be set for the kind {}", self.kind);
                return invalid(format!("{field}.{name}"), problem);
            }
        }
        if self.kind == RegistryKind::Http && self.http.is_none() {
            return invalid(format!("{field}.http"), "must be set for the kind Http");
        }
        if let Some(zookeeper) = &self.zookeeper
            && zookeeper.protocol.is_some()
            && zookeeper.layout != ZooKeeperLayout::DubboInterfaces
        {
            let problem = "is only for the layout DubboInterfaces";
            return invalid(format!("{field}.zookeeper.protocol"), problem);
        }
        if let Some(seconds) = self.etcd.as_ref().and_then(|etcd| etcd.lease_seconds)
            && !(60..=86_400).contains(&seconds)
        {
            let problem = format!("{seconds} s is not between 60 s and 86400 s");
            return invalid(format!("{field}.etcd.leaseSeconds"), problem);
        }
        match &self.eureka {
            Some(eureka) if eureka.renewal_seconds == 0 => {
                invalid(format!("{field}.eureka.renewalSeconds"), "must be at least 1")
            }
            Some(eureka) if eureka.lease_seconds < eureka.renewal_seconds.saturating_mul(3) => invalid(
                format!("{field}.eureka.leaseSeconds"),
                "must be at least three times renewalSeconds, so that a lost heartbeat removes nothing",
            ),
            _ => Ok(()),
        }
    }

    /// Returns the names of the Secrets that the connection needs.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let identity = self.tls.as_ref().and_then(|tls| tls.client_secret.as_deref());
        self.credentials_secret.as_deref().into_iter().chain(identity)
    }
}
