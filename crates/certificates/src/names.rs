//! The names of the Secrets and webhook configurations.

/// The Secret of the authority.
pub(crate) const AUTHORITY: &str = "podward-ca";
/// The services that have a certificate, each in the Secret `<service>-tls`.
pub(crate) const SERVICES: [&str; 6] = [
    "mutating-webhook",
    "validating-webhook",
    "lifecycle-controller",
    "traffic-controller",
    "service-discovery-bridge",
    "node-agent",
];
/// The MutatingWebhookConfiguration.
pub(crate) const MUTATING: &str = "podward-mutating";
/// The ValidatingWebhookConfiguration.
pub(crate) const VALIDATING: &str = "podward-validating";

/// Returns the name of the Secret with the certificate of `service`.
pub(crate) fn secret_of(service: &str) -> String {
    format!("{service}-tls")
}

/// Returns the type of the Secret `secret`. The Secret of the authority holds more than one key.
pub(crate) fn type_of(secret: &str) -> &'static str {
    if secret == AUTHORITY { "Opaque" } else { "kubernetes.io/tls" }
}

/// Returns the DNS names of `service` in `namespace`.
pub(crate) fn dns_names(service: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{service}.{namespace}.svc"),
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ]
}
