//! Removes what would keep DiscoveryBindings, and with them their namespaces, from being deleted without Podward.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::{Client, Resource, ResourceExt};
use podward_api::DiscoveryBinding;
use podward_api::discovery_binding::{BINDING_FINALIZERS, BindingMode};
use podward_core::webhook_path::without_webhook_secrets;
use serde_json::{Value, json};

use crate::api::{is_conflict, is_not_found, list_all, with_timeout};
use crate::terminal::say;

/// How often a binding that somebody else changes is read again.
const ATTEMPTS: usize = 3;

/// Returns what [`release_all`] would change, by `NAMESPACE/NAME`: a line for each binding.
///
/// # Errors
/// Fails if they cannot be listed.
pub(super) async fn plan(client: &Client, namespace: Option<&str>) -> Result<BTreeMap<String, String>> {
    let found = held(client, namespace).await?;
    Ok(found.iter().map(|binding| (full_name(binding), would_remove(binding))).collect())
}

/// Removes Podward's finalizers from the bindings of a namespace, or of the cluster. Their instances stay in the registries,
/// and are named: no application loses its registration because Podward is uninstalled. Returns false if one stays.
///
/// # Errors
/// Fails if they cannot be listed.
pub(super) async fn release_all(client: &Client, namespace: Option<&str>, dry_run: bool) -> Result<bool> {
    let mut all = true;
    for binding in held(client, namespace).await? {
        if dry_run {
            println!("{}", would_remove(&binding));
            continue;
        }
        let (name, left) = (full_name(&binding), left(&binding));
        match release(client, &binding).await {
            Ok(()) => println!("DiscoveryBinding {name}: removed its finalizers{left}"),
            Err(error) => {
                all = false;
                let error = format!("{error:#}");
                let error = without_webhook_secrets(&error);
                println!("DiscoveryBinding {name}: could not remove its finalizers: {error}");
            }
        }
    }
    Ok(all)
}

/// Removes Podward's finalizers from a binding that was deleted, where no service-discovery-bridge runs. Its instances stay in
/// the registry. Says how to remove its hook, which nobody else removes.
///
/// # Errors
/// Fails if the binding cannot be patched.
pub(super) async fn release_deleted(client: &Client, binding: DiscoveryBinding, dry_run: bool) -> Result<()> {
    let binding = DeserializeGuard(Ok(binding));
    println!("no service-discovery-bridge runs that could deregister the instances");
    if dry_run {
        println!("{}", would_remove(&binding));
    } else {
        let (name, left) = (full_name(&binding), left(&binding));
        let removing = || format!("remove the finalizers of DiscoveryBinding {name}");
        release(client, &binding).await.with_context(removing)?;
        println!("DiscoveryBinding {name}: removed its finalizers{left}");
    }
    let hook = format!("{}.{}", binding.namespace().unwrap_or_default(), binding.name_any());
    say(&format!(
        "if its hook exists, pods wait for it: kubectl delete lifecyclehook {hook} --ignore-not-found"
    ));
    Ok(())
}

/// Lists the bindings that have a finalizer of Podward.
async fn held(client: &Client, namespace: Option<&str>) -> Result<Vec<DeserializeGuard<DiscoveryBinding>>> {
    let bindings: Api<DeserializeGuard<DiscoveryBinding>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut found = match list_all(&bindings, ListParams::default()).await {
        Ok(found) => found,
        // The cluster has no DiscoveryBindings.
        Err(error) if is_not_found(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error.context("list the DiscoveryBindings")),
    };
    found.retain(|binding| binding.finalizers().iter().any(|it| is_ours(it)));
    Ok(found)
}

/// Returns whether a finalizer is one of Podward's.
pub(super) fn is_ours(finalizer: &str) -> bool {
    BINDING_FINALIZERS.contains(&finalizer)
}

fn full_name(binding: &DeserializeGuard<DiscoveryBinding>) -> String {
    format!("{}/{}", binding.namespace().unwrap_or_default(), binding.name_any())
}

fn would_remove(binding: &DeserializeGuard<DiscoveryBinding>) -> String {
    format!("DiscoveryBinding {}: would remove its finalizers{}", full_name(binding), left(binding))
}

/// Says what stays in the registry.
fn left(binding: &DeserializeGuard<DiscoveryBinding>) -> String {
    let binding = binding.0.as_ref().ok();
    if binding.is_some_and(|binding| binding.spec.mode == BindingMode::Steer) {
        return String::new();
    }
    match binding.and_then(|binding| binding.status.as_ref()).map(|status| status.present) {
        Some(0) => String::new(),
        Some(present) => {
            format!("; {present} instances stay in its registry until somebody removes them there")
        }
        None => "; its instances, if there are any, stay in its registry until somebody removes them there"
            .to_owned(),
    }
}

async fn release(client: &Client, binding: &DeserializeGuard<DiscoveryBinding>) -> Result<()> {
    let (name, namespace) = (binding.name_any(), binding.namespace().unwrap_or_default());
    let api: Api<DiscoveryBinding> = Api::namespaced(client.clone(), &namespace);
    let mut meta = binding.meta().clone();
    for attempt in 1.. {
        let Some(patch) = patch(&meta) else { return Ok(()) };
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match with_timeout(api.patch_metadata(&name, &params, &patch)).await {
            Ok(_) => return Ok(()),
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) if is_conflict(&error) && attempt < ATTEMPTS => {
                let again: PartialObjectMeta<DiscoveryBinding> =
                    with_timeout(api.get_metadata(&name)).await?;
                meta = again.metadata;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the patch that removes Podward's finalizers from an object. `None` if it has none.
fn patch(meta: &kube::api::ObjectMeta) -> Option<Value> {
    let mut finalizers = meta.finalizers.clone()?;
    let before = finalizers.len();
    finalizers.retain(|finalizer| !is_ours(finalizer));
    (finalizers.len() < before).then(|| {
        json!({"metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
        }})
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_finalizers_of_podward_are_removed() {
        let of = |finalizers: Value| {
            let meta = json!({"name": "web", "uid": "u", "resourceVersion": "7", "finalizers": finalizers});
            patch(&serde_json::from_value(meta).unwrap())
        };
        assert_eq!(
            of(json!(["example.com/x", BINDING_FINALIZERS[0], BINDING_FINALIZERS[1]])),
            Some(json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["example.com/x"]}}))
        );
        assert_eq!(of(json!(["example.com/x"])), None);
        assert_eq!(of(json!([])), None);
    }

    #[test]
    fn instances_that_stay_are_named() {
        let binding = |status: Value| {
            serde_json::from_value::<DeserializeGuard<DiscoveryBinding>>(json!({
                "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
                "metadata": {"namespace": "shop", "name": "web"},
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}}, "registry": {"clusterRegistry": "corp"},
                    "service": {"name": "web"}, "port": 80,
                },
                "status": status,
            }))
            .unwrap()
        };
        assert!(left(&binding(json!({"present": 3}))).contains("3 instances stay"));
        assert_eq!(left(&binding(json!({"present": 0}))), "");
        assert!(left(&binding(Value::Null)).contains("if there are any"));
    }
}
