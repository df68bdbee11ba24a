//! The objects that this version installs. The manifests that the chart renders by default are part of this program.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::configurations::WebhookConfiguration;

/// The rendered chart. It is the doctor's source for what every installation consists of.
const RENDERED: &str = include_str!("../../../../../tests/charts/cases/default/rendered.yaml");
/// The rendered chart with services that are not installed by default.
const OPTIONAL_RENDERED: [&str; 2] = [
    include_str!("../../../../../tests/charts/cases/cloneset-controller/rendered.yaml"),
    include_str!("../../../../../tests/charts/cases/service-discovery-bridge/rendered.yaml"),
];

/// Podward's namespace in [`RENDERED`].
const RENDERED_NAMESPACE: &str = "podward-system";

/// The objects of an installation that the doctor checks.
#[derive(Debug)]
pub(super) struct ExpectedManifests {
    /// The names of the services that are installed by default. Each has a Deployment, a Service and a service account of
    /// that name.
    pub(super) services: BTreeSet<String>,
    pub(super) webhooks: Vec<WebhookConfiguration>,
    /// Also those of services that are not installed by default. Some depend on values of the chart.
    pub(super) grants: Vec<RoleGrant>,
}

/// The objects that a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrantScope {
    /// All objects of the cluster.
    Cluster,
    /// Those in Podward's namespace.
    Podward,
    /// Those in another namespace.
    Namespace(String),
}

impl GrantScope {
    fn of_namespace(namespace: Option<String>) -> Self {
        match namespace {
            Some(other) if other != RENDERED_NAMESPACE => Self::Namespace(other),
            _ => Self::Podward,
        }
    }

    /// Returns the namespace, or `None` for the cluster. `podward` is Podward's namespace.
    pub(super) fn namespace<'a>(&'a self, podward: &'a str) -> Option<&'a str> {
        match self {
            Self::Cluster => None,
            Self::Podward => Some(podward),
            Self::Namespace(other) => Some(other),
        }
    }
}

/// The rules of a role that is bound to a service.
#[derive(Debug)]
pub(super) struct RoleGrant {
    /// The name of the service account.
    pub(super) account: String,
    /// `ClusterRole x` or `Role x`.
    pub(super) role: String,
    pub(super) scope: GrantScope,
    pub(super) rules: Vec<PolicyRule>,
}

impl ExpectedManifests {
    /// Parses the manifests.
    ///
    /// # Errors
    /// When an object has an unknown form.
    pub(super) fn read() -> Result<Self> {
        Self::parse(RENDERED, &OPTIONAL_RENDERED)
    }

    /// Parses a rendered chart. `optional` are others, from which only the grants of further services are taken.
    ///
    /// # Errors
    /// When an object has an unknown form.
    pub(super) fn parse(rendered: &str, optional: &[&str]) -> Result<Self> {
        let documents = ManifestDocuments::parse(rendered)?;
        let services = documents.services()?;
        let mutating = documents.all::<MutatingWebhookConfiguration>("MutatingWebhookConfiguration")?;
        let validating = documents.all::<ValidatingWebhookConfiguration>("ValidatingWebhookConfiguration")?;
        let mutating = mutating.into_iter().map(WebhookConfiguration::from);
        let webhooks = mutating.chain(validating.into_iter().map(WebhookConfiguration::from)).collect();
        let mut grants = documents.grants(&services)?;
        for rendered in optional {
            let documents = ManifestDocuments::parse(rendered)?;
            let further = documents.services()?.difference(&services).cloned().collect();
            grants.extend(documents.grants(&further)?);
        }
        Ok(Self { services, webhooks, grants })
    }
}

struct ManifestDocuments(Vec<Value>);

impl ManifestDocuments {
    fn parse(rendered: &str) -> Result<Self> {
        serde_saphyr::from_multiple(rendered).map(Self).context("parse the manifests of this version")
    }

    /// Returns the names of the Deployments.
    fn services(&self) -> Result<BTreeSet<String>> {
        Ok(self.all::<Deployment>("Deployment")?.iter().map(ResourceExt::name_any).collect())
    }

    /// Returns the objects of a kind.
    fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>> {
        let of_kind = self.0.iter().filter(|document| document["kind"] == kind);
        let read = of_kind.map(|document| serde_json::from_value(document.clone()));
        read.collect::<Result<_, _>>().with_context(|| format!("parse a {kind} of this version"))
    }

    /// Returns the rules that are bound to services. The chart's jobs and tests have service accounts of their own,
    /// which exist only while they run.
    fn grants(&self, services: &BTreeSet<String>) -> Result<Vec<RoleGrant>> {
        let (clusterwide, local) = (self.all::<ClusterRole>("ClusterRole")?, self.all::<Role>("Role")?);
        let mut grants = Vec::new();
        // A binding grants in its own namespace, and in the whole cluster if it has none.
        let mut bind = |subjects: Option<Vec<Subject>>, kind: &str, name: &str, scope: GrantScope| {
            let is_it =
                |role: &&Role| role.name_any() == name && GrantScope::of_namespace(role.namespace()) == scope;
            let rules = if kind == "Role" {
                local.iter().find(is_it).map(|role| role.rules.clone())
            } else {
                clusterwide.iter().find(|role| role.name_any() == name).map(|role| role.rules.clone())
            };
            let rules = rules.flatten().with_context(|| format!("find the rules of {kind} {name}"))?;
            for Subject { name: account, .. } in subjects.into_iter().flatten() {
                if services.contains(&account) {
                    let role = format!("{kind} {name}");
                    grants.push(RoleGrant { account, role, scope: scope.clone(), rules: rules.clone() });
                }
            }
            anyhow::Ok(())
        };
        for binding in self.all::<ClusterRoleBinding>("ClusterRoleBinding")? {
            bind(binding.subjects, &binding.role_ref.kind, &binding.role_ref.name, GrantScope::Cluster)?;
        }
        for binding in self.all::<RoleBinding>("RoleBinding")? {
            let scope = GrantScope::of_namespace(binding.metadata.namespace);
            bind(binding.subjects, &binding.role_ref.kind, &binding.role_ref.name, scope)?;
        }
        Ok(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_have_all_objects() {
        let manifests = ExpectedManifests::read().unwrap();
        let names = ["lifecycle-controller", "mutating-webhook", "traffic-controller", "validating-webhook"];
        assert!(manifests.services.iter().eq(names.iter()), "{:?}", manifests.services);
        let configurations: Vec<_> = manifests.webhooks.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(configurations, ["podward-mutating", "podward-validating"]);
        for name in names {
            let of_service: Vec<_> = manifests.grants.iter().filter(|grant| grant.account == name).collect();
            // Its own ClusterRole, and the Role for its certificate.
            assert!(of_service.iter().any(|grant| grant.role == format!("ClusterRole podward-{name}")));
            assert!(
                of_service
                    .iter()
                    .any(|grant| grant.role == format!("Role {name}-tls")
                        && grant.scope == GrantScope::Podward)
            );
            assert!(of_service.iter().all(|grant| !grant.rules.is_empty()));
        }
        for name in ["cloneset-controller", "service-discovery-bridge"] {
            let role = format!("ClusterRole podward-{name}");
            let is_it = |grant: &&RoleGrant| grant.account == name && grant.role == role;
            assert_eq!(manifests.grants.iter().filter(is_it).count(), 1, "{name}");
        }
    }
}
