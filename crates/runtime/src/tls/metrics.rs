//! Metrics of the TLS port.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::connections::ConnectionMetrics;

/// The expiry of the serving certificate, its reloads, and the connections of the port. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
    expiry: Gauge,
    refused: Gauge,
    connections: ConnectionMetrics,
}

impl TlsMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        for outcome in ["success", "failure"] {
            // From the start, so that an alert on a rate sees the first one too.
            drop(self.reloads.get_or_create(&[("outcome", outcome)]));
        }
        registry.register(
            "tls_certificate_reloads",
            "Times that a new certificate was read",
            self.reloads.clone(),
        );
        registry.register(
            "tls_certificate_expiry_timestamp_seconds",
            "Time at which the serving certificate expires, in seconds since 1970; 0 while there is none",
            self.expiry.clone(),
        );
        registry.register(
            "tls_certificate_refused",
            "1 while the latest certificate can't be used, so that an older one is served",
            self.refused.clone(),
        );
        self.connections.register(registry);
    }

    pub(super) fn connections(&self) -> ConnectionMetrics {
        self.connections.clone()
    }

    pub(super) fn serving(&self, leaf: &CertificateDer<'_>) {
        if let Ok((_, certificate)) = X509Certificate::from_der(leaf) {
            self.expiry.set(certificate.validity().not_after.timestamp());
        }
    }

    pub(super) fn reloaded(&self, success: bool) {
        self.refused.set(i64::from(!success));
        self.reloads.get_or_create(&[("outcome", if success { "success" } else { "failure" })]).inc();
    }

    /// The certificate that is served is the latest again.
    pub(super) fn restored(&self) {
        self.refused.set(0);
    }

    #[cfg(test)]
    pub(super) fn is_refused(&self) -> bool {
        self.refused.get() == 1
    }

    #[cfg(test)]
    pub(super) fn reloads(&self, outcome: &'static str) -> u64 {
        self.reloads.get_or_create(&[("outcome", outcome)]).get()
    }
}
