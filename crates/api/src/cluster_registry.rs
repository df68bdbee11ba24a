//! `ClusterRegistry`: a connection to a service registry that a platform team defines once.
// `KubeSchema` copies the struct into the body of a function, where `pub` is unreachable.
#![allow(unreachable_pub)]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::invalid_field::{InvalidField, invalid};
use crate::registry_connection::RegistryConnection;

/// A connection to a service registry, and who may use it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "podward.io",
    version = "v1alpha1",
    kind = "ClusterRegistry",
    plural = "clusterregistries",
    doc = "A connection to a service registry outside Kubernetes that the DiscoveryBindings of several namespaces use.",
    shortname = "creg",
    category = "podward",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.connection.kind"}"#,
    printcolumn = r#"{"name":"Addresses","type":"string","jsonPath":".spec.connection.addresses"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRegistrySpec {
    /// The connection. Its Secrets are in Podward's namespace.
    pub connection: RegistryConnection,
    /// The namespaces whose DiscoveryBindings may use it: names, in which `*` stands for any characters. When empty, all
    /// namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    pub namespaces: Vec<String>,
    /// The names of services that DiscoveryBindings may use, in which `*` stands for any characters and `${namespace}` for
    /// the namespace of the DiscoveryBinding. When empty, all names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub services: Vec<String>,
}

impl ClusterRegistry {
    /// Checks the resource, except what only the client of the registry knows.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), InvalidField> {
        self.spec.connection.check("spec.connection")
    }

    /// Checks that a DiscoveryBinding in `namespace` may use the service of the name `service`. An error is a text for people.
    ///
    /// # Errors
    /// Fails if the namespace or the service is not among those that the registry allows.
    pub fn check_use(&self, namespace: &str, service: &str) -> Result<(), InvalidField> {
        let registry = self.metadata.name.as_deref().unwrap_or_default();
        let allowed = &self.spec.namespaces;
        if !allowed.is_empty() && !allowed.iter().any(|pattern| matches(pattern, namespace)) {
            let problem = format!("ClusterRegistry {registry} does not allow namespace {namespace}");
            return invalid("spec.registry.clusterRegistry", problem);
        }
        let allowed = &self.spec.services;
        let fits = |pattern: &String| matches(&pattern.replace("${namespace}", namespace), service);
        if !allowed.is_empty() && !allowed.iter().any(fits) {
            let problem = format!(
                "ClusterRegistry {registry} does not allow the service name {service:?} in namespace {namespace}; allowed are \
                 {}",
                allowed.join(", ")
            );
            return invalid("spec.service.name", problem);
        }
        Ok(())
    }
}

/// Returns whether `text` has the form of `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let Some(end) = parts.pop() else { return true };
    for part in parts {
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text) in
            [("a*", "abc"), ("*", ""), ("a*c", "abc"), ("*b*", "abc"), ("abc", "abc"), ("a*a", "aa")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a*", "bc"), ("a*a", "a"), ("ab", "abc"), ("*d*", "abc"), ("*c*c", "abc")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_registry_limits_its_users() {
        let mut registry = ClusterRegistry::new("corp", ClusterRegistrySpec::default());
        assert_eq!(registry.check_use("shop", "any"), Ok(()));
        registry.spec.namespaces = vec!["shop-*".to_owned()];
        registry.spec.services = vec!["${namespace}.*".to_owned()];
        assert_eq!(registry.check_use("shop-eu", "shop-eu.web"), Ok(()));
        let refused = registry.check_use("bank", "bank.web").unwrap_err();
        assert_eq!(refused.field, "spec.registry.clusterRegistry");
        let refused = registry.check_use("shop-eu", "bank.web").unwrap_err();
        assert_eq!(refused.field, "spec.service.name");
    }
}
