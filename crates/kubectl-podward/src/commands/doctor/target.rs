//! The installation that the doctor checks.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::timeout;

use super::configurations;
use super::manifests::ExpectedManifests;

/// The label of all objects of the chart.
pub(in crate::commands) const PART_OF: &str = "app.kubernetes.io/part-of=podward";
/// The namespace if the webhooks do not show another.
pub(in crate::commands) const DEFAULT_NAMESPACE: &str = "podward-system";

/// The installation that the doctor checks.
pub(super) struct DoctorTarget {
    pub(super) client: Client,
    /// Podward's namespace.
    pub(super) namespace: String,
    /// The namespace for pods that are created as dry runs.
    pub(super) probe_namespace: String,
    /// What this version installs.
    pub(super) manifests: ExpectedManifests,
}

/// Returns whether a container of the Deployment has an argument that `is_it`.
pub(super) fn has_argument(deployment: &Deployment, is_it: impl Fn(&str) -> bool) -> bool {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = pod.into_iter().flat_map(|pod| &pod.containers);
    containers.flat_map(|container| container.args.iter().flatten()).any(|argument| is_it(argument))
}

impl DoctorTarget {
    /// Finds the installation. If `namespace` is `None`, uses the namespace of the Services that Podward's webhooks
    /// call, or the default namespace if the webhooks cannot be read; the checks then report why.
    ///
    /// # Errors
    /// When the manifests in this program cannot be parsed.
    pub(super) async fn find(
        client: Client,
        namespace: Option<String>,
        probe_namespace: String,
        deadline: Duration,
    ) -> Result<Self> {
        let manifests = ExpectedManifests::read()?;
        let namespace = match namespace {
            Some(namespace) => namespace,
            None => match timeout(deadline, configurations::list(&client)).await {
                Ok(Ok(found)) => namespace_of(&manifests, &found),
                Ok(Err(_)) | Err(_) => None,
            }
            .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
        };
        Ok(Self { client, namespace, probe_namespace, manifests })
    }

    /// Returns Podward's Deployments.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) async fn deployments(&self) -> Result<Vec<Deployment>> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.list(&ListParams::default().labels(PART_OF)).await;
        Ok(found.with_context(|| format!("list the Deployments in namespace {}", self.namespace))?.items)
    }
}

/// Returns the namespace of the Services that Podward's webhooks call, or `None` if there are no such webhooks.
fn namespace_of(
    manifests: &ExpectedManifests,
    found: &[configurations::WebhookConfiguration],
) -> Option<String> {
    let ours = found.iter().filter(|found| manifests.webhooks.iter().any(|ours| ours.name == found.name));
    ours.flat_map(|found| &found.hooks).find_map(|hook| Some(hook.service.as_ref()?.0.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_the_webhooks_services() {
        let manifests = ExpectedManifests::read().unwrap();
        let mut found = manifests.webhooks.clone();
        assert_eq!(namespace_of(&manifests, &found).as_deref(), Some("podward-system"));
        found[0].hooks[0].service = Some(("elsewhere".to_owned(), "mutating-webhook".to_owned()));
        assert_eq!(namespace_of(&manifests, &found).as_deref(), Some("elsewhere"));
        found.iter_mut().for_each(|found| found.name = "strange".to_owned());
        assert_eq!(namespace_of(&manifests, &found), None);
    }
}
