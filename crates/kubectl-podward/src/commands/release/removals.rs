//! Releases the removals from a service registry that a DiscoveryBinding holds.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use podward_api::DiscoveryBinding;
use podward_api::discovery_binding::RELEASE_REMOVALS_ANNOTATION;
use serde_json::json;

use crate::terminal::safe_line;

/// What names a DiscoveryBinding instead of a pod: `kubectl get` accepts the same.
const PREFIXES: [&str; 3] = ["discoverybinding/", "discoverybindings/", "dbind/"];

/// Returns the name of a DiscoveryBinding. `None` if `target` names a pod.
pub(super) fn binding_name(target: &str) -> Option<&str> {
    PREFIXES.into_iter().find_map(|prefix| target.strip_prefix(prefix))
}

/// Releases the removals that the binding holds at the moment, and no others: they are named by their id.
///
/// # Errors
/// Fails if the binding does not exist or cannot be patched.
pub(super) async fn release(
    client: Client,
    namespace: Option<&str>,
    name: &str,
    dry_run: bool,
) -> Result<ExitCode> {
    let bindings: Api<DiscoveryBinding> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::default_namespaced(client),
    };
    let found = bindings.get_opt(name).await.with_context(|| format!("read DiscoveryBinding {name}"))?;
    let Some(binding) = found else { bail!("there is no DiscoveryBinding {name}; check the namespace") };
    let shown = format!("DiscoveryBinding {}/{name}", binding.namespace().unwrap_or_default());
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
    let patched = bindings.patch_metadata(name, &PatchParams::default(), &patch).await;
    patched.with_context(|| format!("release the removals of {shown}"))?;
    println!("released them; other removals are held again");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_named_by_their_kind() {
        assert_eq!(binding_name("discoverybinding/web"), Some("web"));
        assert_eq!(binding_name("dbind/web"), Some("web"));
        assert_eq!(binding_name("web-0"), None);
    }
}
