//! Whether the pods that DiscoveryBindings select are held by them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use podward_api::{DiscoveryBinding, compile_selector};
use podward_core::hooks::hook_finalizer;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_AVAILABLE};

use super::super::finding::{Finding, is_denied};

type PodMeta = PartialObjectMeta<Pod>;

pub(super) async fn check(client: &Client, bindings: &[DiscoveryBinding]) -> Result<Vec<Finding>> {
    let mut by_namespace: BTreeMap<String, Vec<&DiscoveryBinding>> = BTreeMap::new();
    for binding in bindings.iter().filter(|binding| binding.metadata.deletion_timestamp.is_none()) {
        by_namespace.entry(binding.namespace().unwrap_or_default()).or_default().push(binding);
    }
    let mut findings = Vec::new();
    for (namespace, bindings) in by_namespace {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let pods = match pods.list_metadata(&ListParams::default()).await {
            Ok(pods) => pods.items,
            Err(error) if is_denied(Some(&error)) => {
                findings.push(Finding::skipped(
                    "whether DiscoveryBindings hold their pods was not checked: that needs the right to list pods, which \
                     helm test does not have",
                ));
                return Ok(findings);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("list the pods of namespace {namespace}"));
            }
        };
        findings.extend(bindings.into_iter().flat_map(|binding| judge(binding, &pods)));
    }
    Ok(findings)
}

/// Returns the findings about the pods of a binding's namespace.
fn judge(binding: &DiscoveryBinding, pods: &[PodMeta]) -> Vec<Finding> {
    let (namespace, name) = (binding.namespace().unwrap_or_default(), binding.name_any());
    // The status says that the selector is invalid.
    let Ok(selector) = compile_selector(&binding.spec.selector) else { return Vec::new() };
    let finalizer = hook_finalizer(&format!("{namespace}.{name}"));
    let is_selected =
        |pod: &&PodMeta| selector.matches(pod.labels()) && pod.metadata.deletion_timestamp.is_none();
    let (controlled, free): (Vec<&PodMeta>, Vec<&PodMeta>) = pods
        .iter()
        .filter(is_selected)
        .partition(|pod| pod.labels().get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE));
    let mut findings = Vec::new();
    let in_service = controlled.iter().filter(|pod| pod.labels().contains_key(SERVICE_AVAILABLE));
    let not_held: Vec<&&PodMeta> = in_service.filter(|pod| !pod.finalizers().contains(&finalizer)).collect();
    if let Some(first) = not_held.first() {
        let first = first.name_any();
        findings.push(Finding::warning(
            format!(
                "{} pods that DiscoveryBinding {namespace}/{name} selects are in service without it, such as {first}: they \
                 are updated and deleted without waiting for the registry. They were created before the binding, or it has \
                 not registered them yet",
                not_held.len()
            ),
            format!("kubectl podward why -n {namespace} {first}; replace the pods if the binding is as it should be"),
        ));
    }
    if !free.is_empty() {
        findings.push(Finding::note(format!(
            "{} pods that DiscoveryBinding {namespace}/{name} selects have not opted in ({CONTROL_LABEL}): nothing waits \
             for their registry",
            free.len()
        )));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::finding::FindingLevel;
    use super::*;

    fn pod(name: &str, labels: Value, finalizers: &[&str]) -> PodMeta {
        let mut all = json!({"app": "web"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "namespace": "shop", "labels": all, "finalizers": finalizers},
        }))
        .unwrap()
    }

    #[test]
    fn pods_that_the_binding_does_not_hold_are_found() {
        let binding: DiscoveryBinding = serde_json::from_value(json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "registry": {"clusterRegistry": "corp"},
                "service": {"name": "web"}, "port": 80,
            },
        }))
        .unwrap();
        let (controlled, in_service) = (
            json!({"kusionstack.io/control": "true"}),
            json!({"kusionstack.io/control": "true", "podopslifecycle.kusionstack.io/service-available": "1"}),
        );
        let finalizer = hook_finalizer("shop.web");
        let held = pod("held", in_service.clone(), &[&finalizer]);
        // It is not in service yet.
        let young = pod("young", controlled, &[]);
        let other = pod("other", json!({"app": "api"}), &[]);
        assert_eq!(judge(&binding, &[held.clone(), young, other]), []);
        let found =
            judge(&binding, &[held, pod("old", in_service, &["prot.podopslifecycle.kusionstack.io/x"])]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].level == FindingLevel::Warning && found[0].what.contains("such as old"),
            "{found:?}"
        );
        assert!(found[0].next.as_ref().unwrap().starts_with("kubectl podward why -n shop old"), "{found:?}");
        let found = judge(&binding, &[pod("free", json!({}), &[])]);
        assert!(found.len() == 1 && found[0].level == FindingLevel::Note, "{found:?}");
    }
}
