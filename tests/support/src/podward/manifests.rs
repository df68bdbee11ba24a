//! Applies the manifests in `deploy`, changed for services that run as processes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::wait::conditions,
};
use podward_core::webhook_path::{PathSecret, route_of};
use podward_images::workspace_dir;
use serde_json::{Value, json};

use super::{kind::ServiceKind, options::NAMESPACE};
use crate::wait::{WAIT, within};
use crate::watched::await_condition;

const FIELD_MANAGER: &str = "podward-support";
/// The folders of the manifests. All files in them are applied.
const FOLDERS: [&str; 2] = ["deploy/crds", "deploy/podward"];
/// The definition that is only installed with the cloneset-controller.
const CLONESETS: &str = "deploy/crds/cloneset/clonesets.apps.kruise.io.yaml";
const CRD: &str = "CustomResourceDefinition";
/// The output of the chart with many values. A test keeps it up to date.
const RENDERED: &str = "tests/charts/cases/settings/rendered.yaml";
/// The cases of the chart with the services that are not installed by default.
const WITH_BRIDGE: &str = "tests/charts/cases/service-discovery-bridge/rendered.yaml";
const WITH_CLONESETS: &str = "tests/charts/cases/cloneset-controller/rendered.yaml";
/// The role, and its binding, of a lifecycle-controller that tries deletions in the name of their requesters.
const REQUESTERS: &str = "podward-lifecycle-controller-requesters";

/// All objects, in the order of their creation.
#[derive(Debug)]
pub(super) struct PodwardManifests {
    objects: Vec<Value>,
    webhooks: Vec<Value>,
}

impl PodwardManifests {
    pub(super) fn read() -> Result<Self> {
        let mut objects = Vec::new();
        for file in FOLDERS.iter().map(|folder| files(folder)).collect::<Result<Vec<_>>>()?.iter().flatten() {
            objects.extend(documents(file)?);
        }
        objects.retain(Value::is_object);
        let is_webhook = |object: &Value| kind_of(object).ends_with("WebhookConfiguration");
        let (webhooks, mut objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_webhook);
        // Namespaces and definitions come first, because other objects need them.
        objects.sort_by_key(|object| match kind_of(object) {
            "Namespace" => 0,
            CRD | "ServiceAccount" => 1,
            _ => 2,
        });
        // The services run as processes, so that workloads and Services are left out.
        objects.retain(|object| {
            let leads_to_pods = matches!(kind_of(object), "Deployment" | "Service" | "PodDisruptionBudget");
            !leads_to_pods && kind_of(object) != "Kustomization"
        });
        Ok(Self { objects, webhooks })
    }

    /// Adds the role of the chart with which the lifecycle-controller tries deletions in the name of their requesters.
    pub(super) fn with_requesters(mut self) -> Result<Self> {
        let mut found = documents(&workspace_dir().join(RENDERED))?;
        found.retain(|object| object["metadata"]["name"] == REQUESTERS);
        ensure!(found.len() == 2, "{RENDERED} has {} objects with the name {REQUESTERS}", found.len());
        // The case is installed in another namespace.
        for subject in
            found.iter_mut().filter_map(|object| object.get_mut("subjects")?.as_array_mut()).flatten()
        {
            subject["namespace"] = NAMESPACE.into();
        }
        self.objects.extend(found);
        Ok(self)
    }

    /// Adds the account, the rights and the Leases of the service-discovery-bridge.
    ///
    /// # Errors
    /// Fails if they are not in the case of the chart.
    pub(super) fn with_bridge(mut self) -> Result<Self> {
        self.objects.extend(rights(WITH_BRIDGE, ServiceKind::ServiceDiscoveryBridge)?);
        Ok(self)
    }

    /// Adds the definition of CloneSets, and the account and the rights of the cloneset-controller.
    ///
    /// # Errors
    /// Fails if they do not exist.
    pub(super) fn with_cloneset_controller(mut self) -> Result<Self> {
        self.objects.extend(documents(&workspace_dir().join(CLONESETS))?);
        self.objects.extend(rights(WITH_CLONESETS, ServiceKind::ClonesetController)?);
        Ok(self)
    }

    /// Creates everything except the webhook configurations, and waits until the API server serves the custom
    /// resources.
    pub(super) async fn install(&self, client: &Client) -> Result<()> {
        for object in &self.objects {
            apply(client, object).await?;
        }
        for object in self.objects.iter().filter(|object| kind_of(object) == CRD) {
            established(client, object).await?;
        }
        Ok(())
    }

    pub(super) async fn uninstall(&self, client: &Client) -> Result<()> {
        for object in self.objects.iter().rev() {
            delete(client, object).await?;
        }
        Ok(())
    }

    /// Applies the webhook configurations with the addresses of processes in place of Services.
    pub(super) async fn register_webhooks(
        &self,
        client: &Client,
        at: &[(ServiceKind, SocketAddr)],
        path: &PathSecret,
        ca: &str,
    ) -> Result<()> {
        for configuration in &self.webhooks {
            let configuration = with_addresses(configuration.clone(), at, path, ca)?;
            apply(client, &configuration).await?;
        }
        Ok(())
    }

    pub(super) async fn unregister_webhooks(&self, client: &Client) -> Result<()> {
        for configuration in &self.webhooks {
            delete(client, configuration).await?;
        }
        Ok(())
    }
}

/// Returns the manifests of `folder`, sorted by name.
fn files(folder: &str) -> Result<Vec<PathBuf>> {
    let dir = workspace_dir().join(folder);
    let entries = std::fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    Ok(files)
}

/// Returns the documents of a file.
fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("understand {}", file.display()))
}

/// Returns the account and the rights of a service, and the Leases that the chart creates for it, from a case of the
/// chart.
fn rights(case: &str, kind: ServiceKind) -> Result<Vec<Value>> {
    let mut found = documents(&workspace_dir().join(case))?;
    found.retain(|object| {
        object["metadata"]["labels"]["app.kubernetes.io/name"] == kind.as_str()
            && matches!(
                kind_of(object),
                "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" | "Lease"
            )
    });
    ensure!(found.len() > 4, "{case} has {} objects of the {kind}", found.len());
    Ok(found)
}

/// Waits until the API server serves the resource that `object` defines.
async fn established(client: &Client, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().context("a manifest without a name")?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wait = async {
        let established = await_condition(definitions, name, conditions::is_crd_established()).await;
        established.map(drop).context("watch the definition")
    };
    within(WAIT, || format!("the API server serving {name}"), wait).await
}

fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn with_addresses(
    mut configuration: Value,
    at: &[(ServiceKind, SocketAddr)],
    path: &PathSecret,
    ca: &str,
) -> Result<Value> {
    let webhooks =
        configuration["webhooks"].as_array_mut().context("a webhook configuration without webhooks")?;
    for webhook in webhooks {
        let service = &webhook["clientConfig"]["service"];
        let name = service["name"].as_str().unwrap_or_default().to_owned();
        let entry = webhook["name"].as_str().unwrap_or_default();
        let route = route_of(entry).with_context(|| format!("no route is known of the webhook {entry:?}"))?;
        let Some((_, address)) = at.iter().find(|(kind, _)| kind.as_str() == name) else {
            bail!(
                "the webhook {} asks the Service {name:?}, which is none of Podward's webhooks",
                webhook["name"]
            );
        };
        webhook["clientConfig"] = json!({"url": format!("https://{address}{}", path.path(route)), "caBundle": base64(ca.as_bytes())});
    }
    Ok(configuration)
}

fn base64(bytes: &[u8]) -> Value {
    json!(k8s_openapi::ByteString(bytes.to_vec()))
}

fn api(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
    let name = object["metadata"]["name"].as_str().context("a manifest without a name")?;
    let api = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, name.to_owned()))
}

async fn apply(client: &Client, object: &Value) -> Result<()> {
    let (api, name) = api(client, object)?;
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api.patch(&name, &parameters, &Patch::Apply(object)).await;
    applied.map(drop).with_context(|| format!("apply {} {name}", kind_of(object)))
}

async fn delete(client: &Client, object: &Value) -> Result<()> {
    let (api, name) = api(client, object)?;
    match api.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop).with_context(|| format!("delete {} {name}", kind_of(object))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_get_the_addresses_of_processes() {
        let configuration = json!({"webhooks": [
            {"name": "create.mutating.podward.io", "clientConfig": {"service": {"name": "mutating-webhook"}}},
        ]});
        let at = [(ServiceKind::MutatingWebhook, "10.0.0.1:9443".parse().unwrap())];
        let path = PathSecret::of_random([1; 32]);
        let ready = with_addresses(configuration.clone(), &at, &path, "ca").unwrap();
        assert_eq!(
            ready["webhooks"][0]["clientConfig"],
            json!({"url": format!("https://10.0.0.1:9443{}", path.path("/mutate")), "caBundle": "Y2E="})
        );
        assert!(with_addresses(configuration, &[], &path, "ca").is_err());
    }

    #[test]
    fn clonesets_are_only_defined_with_their_controller() {
        let defines = |manifests: &PodwardManifests| {
            manifests.objects.iter().any(|object| object["metadata"]["name"] == "clonesets.apps.kruise.io")
        };
        let manifests = PodwardManifests::read().unwrap();
        assert!(!defines(&manifests));
        assert!(defines(&manifests.with_cloneset_controller().unwrap()));
    }
}
