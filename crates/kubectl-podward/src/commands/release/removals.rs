//! Releases the removals from a service registry that a DiscoveryBinding holds, or the binding itself if nobody else does.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use podward_api::DiscoveryBinding;
use podward_api::discovery_binding::RELEASE_REMOVALS_ANNOTATION;
use serde_json::json;

use super::bindings;
use super::stop::PodwardInstallation;
use crate::api::with_timeout;
use crate::terminal::safe_line;

/// What names a DiscoveryBinding instead of a pod: `kubectl get` accepts the same.
const PREFIXES: [&str; 3] = ["discoverybinding/", "discoverybindings/", "dbind/"];

/// Returns the name of a DiscoveryBinding. `None` if `target` names a pod.
pub(super) fn binding_name(target: &str) -> Option<&str> {
    PREFIXES.into_iter().find_map(|prefix| target.strip_prefix(prefix))
}

/// Releases the removals that the binding holds at the moment, and no others: they are named by their id. A binding that was
/// deleted while no service-discovery-bridge runs is released itself.
///
/// # Errors
/// Fails if the binding does not exist or cannot be patched, or if it was deleted and it is not known whether the bridge runs.
pub(super) async fn release(
    client: Client,
    installation: &PodwardInstallation,
    namespace: Option<&str>,
    name: &str,
    dry_run: bool,
) -> Result<ExitCode> {
    let api: Api<DiscoveryBinding> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::default_namespaced(client.clone()),
    };
    let found =
        with_timeout(api.get_opt(name)).await.with_context(|| format!("read DiscoveryBinding {name}"))?;
    let Some(binding) = found else { bail!("there is no DiscoveryBinding {name}; check the namespace") };
    let shown = format!("DiscoveryBinding {}/{name}", binding.namespace().unwrap_or_default());
    let waits = binding.metadata.deletion_timestamp.is_some()
        && binding.finalizers().iter().any(|finalizer| bindings::is_ours(finalizer));
    if waits {
        match installation.has_bridge().await {
            Ok(true) => {}
            Ok(false) => {
                bindings::release_deleted(&client, binding, dry_run).await?;
                return Ok(ExitCode::SUCCESS);
            }
            // Who may change the binding may have no right to see Podward's Deployments.
            Err(_) if binding.status.as_ref().is_some_and(|status| status.held_removals.is_some()) => {}
            Err(error) => return Err(error),
        }
    }
    let Some(held) = binding.status.as_ref().and_then(|status| status.held_removals.as_ref()) else {
        println!("{shown} holds no removals");
        return Ok(ExitCode::SUCCESS);
    };
    println!("{shown} holds {} removals: {}", held.count, safe_line(&held.reason));
    if binding.annotations().get(RELEASE_REMOVALS_ANNOTATION) == Some(&held.id) {
        println!("they are released already; the service-discovery-bridge removes the instances");
        return Ok(ExitCode::SUCCESS);
    }
    if dry_run {
        println!("would release them");
        return Ok(ExitCode::SUCCESS);
    }
    let metadata = json!({"uid": binding.uid(), "annotations": {RELEASE_REMOVALS_ANNOTATION: held.id}});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let patched = with_timeout(api.patch_metadata(name, &PatchParams::default(), &patch)).await;
    patched.with_context(|| format!("release the removals of {shown}"))?;
    println!("released them; other removals are held again");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Method, StatusCode};
    use podward_api::discovery_binding::BINDING_FINALIZER;
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::Value;

    use super::*;
    use crate::api_server;

    /// Releases the binding shop/web, where the Deployment of the bridge in `podward-system` is `bridge`. Webhooks call Services
    /// there, unless there are none. Returns the outcome, and how many patches there were.
    async fn released(
        is_deleted: bool,
        bridge: Option<Value>,
        has_webhooks: bool,
        podward: &str,
    ) -> (Result<ExitCode>, usize) {
        let patches = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&patches);
        let mut metadata = json!({
            "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7", "finalizers": [BINDING_FINALIZER],
        });
        if is_deleted {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let binding = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding", "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "registry": {"clusterRegistry": "corp"},
                "service": {"name": "web"}, "port": 80,
            },
        });
        let webhooks = json!({"metadata": {"name": "podward-mutating"}, "webhooks": [{
            "name": "x", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "podward-system", "name": "mutating-webhook"}},
        }]});
        let client = api_server::client(move |request| {
            if request.method() == Method::PATCH {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            let path = request.uri().path();
            Some(match (path.rsplit_once('/').unwrap(), &bridge) {
                ((_, "web"), _) => json_answer(&binding),
                ((_, "podward-mutating"), _) if has_webhooks => json_answer(&webhooks),
                ((_, "deployments"), bridge) if path == "/apis/apps/v1/deployments" => {
                    let query = request.uri().query().unwrap_or_default();
                    let label = "labelSelector=app.kubernetes.io%2Fpart-of%3Dpodward";
                    let found = bridge.as_ref().filter(|_| query.contains(label));
                    json_answer(
                        &json!({"kind": "DeploymentList", "metadata": {}, "items": Vec::from_iter(found)}),
                    )
                }
                ((at, "service-discovery-bridge"), Some(bridge))
                    if at.ends_with("/podward-system/deployments") =>
                {
                    json_answer(bridge)
                }
                _ => failure(StatusCode::NOT_FOUND, "NotFound"),
            })
        });
        let installation = PodwardInstallation::new(client.clone(), Some(podward));
        let outcome = release(client, &installation, None, "web", false).await;
        (outcome, patches.load(Ordering::Relaxed))
    }

    fn bridge(replicas: i32) -> Value {
        json!({
            "metadata": {"namespace": "podward-system", "name": "service-discovery-bridge"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        })
    }

    #[tokio::test]
    async fn a_deleted_binding_is_released_if_no_bridge_runs() {
        for (is_deleted, bridge, patches) in
            [(true, None, 1), (true, Some(bridge(0)), 1), (true, Some(bridge(2)), 0), (false, None, 0)]
        {
            let (outcome, found) = released(is_deleted, bridge.clone(), true, "podward-system").await;
            assert!(
                outcome.is_ok() && found == patches,
                "{is_deleted} {bridge:?}: {outcome:?}, {found} patches"
            );
        }
    }

    #[tokio::test]
    async fn a_bridge_in_another_namespace_is_not_overlooked() {
        for (bridge, has_webhooks) in [(None, true), (Some(bridge(2)), false)] {
            let (outcome, patches) = released(true, bridge, has_webhooks, "elsewhere").await;
            let error = format!("{:#}", outcome.unwrap_err());
            assert!(error.contains("--podward-namespace podward-system") && patches == 0, "{error}");
        }
        let (outcome, patches) = released(true, Some(bridge(0)), false, "elsewhere").await;
        assert!(outcome.is_ok() && patches == 1, "the bridge is scaled down: {outcome:?}, {patches} patches");
    }

    #[test]
    fn bindings_are_named_by_their_kind() {
        assert_eq!(binding_name("discoverybinding/web"), Some("web"));
        assert_eq!(binding_name("dbind/web"), Some("web"));
        assert_eq!(binding_name("web-0"), None);
    }
}
