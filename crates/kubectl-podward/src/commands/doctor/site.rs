//! Where the doctor looks.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::timeout;

use super::hooks;
use super::manifests::Manifests;

/// On everything that the chart makes.
pub(super) const PART_OF: &str = "app.kubernetes.io/part-of=podward";
/// Where Podward is when nothing tells.
const USUAL_NAMESPACE: &str = "podward-system";

pub(super) struct Site {
    pub(super) client: Client,
    /// Podward's own.
    pub(super) namespace: String,
    /// Where pods are created as dry runs.
    pub(super) probe_namespace: String,
    /// What should be there.
    pub(super) manifests: Manifests,
}

impl Site {
    /// Without a namespace, that which Podward's webhooks lead to. When they can't be read either, the usual one: the checks will
    /// tell why.
    pub(super) async fn find(
        client: Client,
        namespace: Option<String>,
        probe_namespace: String,
        deadline: Duration,
    ) -> Result<Self> {
        let manifests = Manifests::read()?;
        let namespace = match namespace {
            Some(namespace) => namespace,
            None => match timeout(deadline, hooks::list(&client)).await {
                Ok(Ok(found)) => namespace_of(&manifests, &found),
                Ok(Err(_)) | Err(_) => None,
            }
            .unwrap_or_else(|| USUAL_NAMESPACE.to_owned()),
        };
        Ok(Self { client, namespace, probe_namespace, manifests })
    }

    /// Podward's Deployments.
    pub(super) async fn deployments(&self) -> Result<Vec<Deployment>> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.list(&ListParams::default().labels(PART_OF)).await;
        Ok(found.with_context(|| format!("list the Deployments in namespace {}", self.namespace))?.items)
    }
}

fn namespace_of(manifests: &Manifests, found: &[hooks::Configuration]) -> Option<String> {
    let ours = found.iter().filter(|found| manifests.webhooks.iter().any(|ours| ours.name == found.name));
    ours.flat_map(|found| &found.hooks).find_map(|hook| Some(hook.service.as_ref()?.0.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_webhooks_tell_where_podward_is() {
        let manifests = Manifests::read().unwrap();
        let mut found = manifests.webhooks.clone();
        assert_eq!(namespace_of(&manifests, &found).as_deref(), Some("podward-system"));
        found[0].hooks[0].service = Some(("elsewhere".to_owned(), "mutating-webhook".to_owned()));
        assert_eq!(namespace_of(&manifests, &found).as_deref(), Some("elsewhere"));
        found.iter_mut().for_each(|found| found.name = "strange".to_owned());
        assert_eq!(namespace_of(&manifests, &found), None);
    }
}
