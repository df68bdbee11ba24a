//! What this version installs, from the manifests themselves: what the chart renders by default is part of this program.

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

use super::hooks::Configuration;

/// What the chart renders. The one place where the doctor knows from what an installation has to be.
const RENDERED: &str = include_str!("../../../../../tests/charts/cases/default/rendered.yaml");

/// What belongs to an installation.
#[derive(Debug)]
pub(super) struct Manifests {
    /// The names of the services: each has a Deployment, a Service and an account of that name.
    pub(super) services: BTreeSet<String>,
    pub(super) webhooks: Vec<Configuration>,
    pub(super) grants: Vec<Grant>,
}

/// Rules that a service needs.
#[derive(Debug)]
pub(super) struct Grant {
    /// The service's account.
    pub(super) account: String,
    /// `ClusterRole x` or `Role x`.
    pub(super) role: String,
    /// Whether the rules are for Podward's namespace alone.
    pub(super) namespaced: bool,
    pub(super) rules: Vec<PolicyRule>,
}

impl Manifests {
    pub(super) fn read() -> Result<Self> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(RENDERED).context("understand the manifests of this version")?;
        let documents = Documents(documents);
        let services = documents.all::<Deployment>("Deployment")?.iter().map(ResourceExt::name_any).collect();
        let mutating = documents.all::<MutatingWebhookConfiguration>("MutatingWebhookConfiguration")?;
        let validating = documents.all::<ValidatingWebhookConfiguration>("ValidatingWebhookConfiguration")?;
        let mutating = mutating.into_iter().map(Configuration::from);
        let webhooks = mutating.chain(validating.into_iter().map(Configuration::from)).collect();
        let grants = documents.grants(&services)?;
        Ok(Self { services, webhooks, grants })
    }
}

struct Documents(Vec<Value>);

impl Documents {
    fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>> {
        let of_kind = self.0.iter().filter(|document| document["kind"] == kind);
        let read = of_kind.map(|document| serde_json::from_value(document.clone()));
        read.collect::<Result<_, _>>().with_context(|| format!("understand a {kind} of this version"))
    }

    /// Of the services alone: jobs and tests of the chart have accounts of their own, which are there while these run.
    fn grants(&self, services: &BTreeSet<String>) -> Result<Vec<Grant>> {
        let (clusterwide, local) = (self.all::<ClusterRole>("ClusterRole")?, self.all::<Role>("Role")?);
        let mut grants = Vec::new();
        let mut bind = |subjects: Option<Vec<Subject>>, kind: &str, name: &str| {
            let namespaced = kind == "Role";
            let rules = if namespaced {
                local.iter().find(|role| role.name_any() == name).map(|role| role.rules.clone())
            } else {
                clusterwide.iter().find(|role| role.name_any() == name).map(|role| role.rules.clone())
            };
            let rules = rules.flatten().with_context(|| format!("there are no rules of {kind} {name}"))?;
            for Subject { name: account, .. } in subjects.into_iter().flatten() {
                if services.contains(&account) {
                    let role = format!("{kind} {name}");
                    grants.push(Grant { account, role, namespaced, rules: rules.clone() });
                }
            }
            anyhow::Ok(())
        };
        for binding in self.all::<ClusterRoleBinding>("ClusterRoleBinding")? {
            bind(binding.subjects, &binding.role_ref.kind, &binding.role_ref.name)?;
        }
        for binding in self.all::<RoleBinding>("RoleBinding")? {
            bind(binding.subjects, &binding.role_ref.kind, &binding.role_ref.name)?;
        }
        Ok(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_installed_is_known() {
        let manifests = Manifests::read().unwrap();
        let names = ["lifecycle-controller", "mutating-webhook", "traffic-controller", "validating-webhook"];
        assert!(manifests.services.iter().eq(names.iter()), "{:?}", manifests.services);
        let configurations: Vec<_> = manifests.webhooks.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(configurations, ["podward-mutating", "podward-validating"]);
        for name in names {
            let of_service: Vec<_> = manifests.grants.iter().filter(|grant| grant.account == name).collect();
            // Its own ClusterRole, and the Role for its certificate.
            assert!(of_service.iter().any(|grant| grant.role == format!("ClusterRole podward-{name}")));
            assert!(
                of_service.iter().any(|grant| grant.role == format!("Role {name}-tls") && grant.namespaced)
            );
            assert!(of_service.iter().all(|grant| !grant.rules.is_empty()));
        }
    }
}
