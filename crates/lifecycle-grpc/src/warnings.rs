//! Warnings about valid hooks that may contain a mistake.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt};
use podward_api::{DeadlinePolicy, LifecycleHook, Phase};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};

/// The maximum number of namespaces in which pods are searched. If more match, there is no warning.
const MAX_NAMESPACES: u32 = 50;

/// Returns the warnings for the author of the hook. If a request to the API server fails, its warning is left out.
pub(super) async fn warnings(client: &Client, hook: &LifecycleHook) -> Vec<String> {
    let spec = &hook.spec;
    let mut warnings = Vec::new();
    let has = |phase| spec.phases.contains(&phase);
    if !spec.operation_types.is_empty() && !has(Phase::PreCheck) && !has(Phase::PostCheck) {
        warnings
            .push("operation_types has no effect: phases has neither PRE_CHECK nor POST_CHECK".to_owned());
    }
    if spec.deadline_policy == DeadlinePolicy::Cancel && !has(Phase::PreCheck) && !has(Phase::Prepare) {
        warnings.push(
            "the deadline policy CANCEL acts as HOLD: there is nothing to cancel in the phases of this hook"
                .to_owned(),
        );
    }
    match matches_a_pod(client, hook).await {
        Ok(false) => warnings.push(format!(
            "the hook matches no pod at the moment; only pods with the label {CONTROL_LABEL}={CONTROL_VALUE} count"
        )),
        Ok(true) => {}
        Err(error) => {
            tracing::debug!(hook = hook.name_any(), "could not search pods that the hook matches: {error}")
        }
    }
    warnings
}

async fn matches_a_pod(client: &Client, hook: &LifecycleHook) -> kube::Result<bool> {
    let mut selector = query(hook.spec.pod_selector.as_ref());
    selector.extend(query(Some(&LabelSelector {
        match_labels: Some([(CONTROL_LABEL.to_owned(), CONTROL_VALUE.to_owned())].into()),
        match_expressions: None,
    })));
    let one = ListParams::default().labels_from(&selector).limit(1);
    if let Some(namespace) = &hook.spec.namespace {
        return has_pod(&Api::namespaced(client.clone(), namespace), &one).await;
    }
    let Some(namespaces) = &hook.spec.namespace_selector else {
        return has_pod(&Api::all(client.clone()), &one).await;
    };
    let matching = ListParams::default().labels_from(&query(Some(namespaces))).limit(MAX_NAMESPACES);
    let namespaces = Api::<Namespace>::all(client.clone()).list_metadata(&matching).await?;
    for namespace in &namespaces.items {
        if has_pod(&Api::namespaced(client.clone(), &namespace.name_any()), &one).await? {
            return Ok(true);
        }
    }
    // True if there are namespaces that were not searched.
    Ok(namespaces.metadata.continue_.is_some_and(|next| !next.is_empty()))
}

async fn has_pod(pods: &Api<Pod>, query: &ListParams) -> kube::Result<bool> {
    Ok(!pods.list_metadata(query).await?.items.is_empty())
}

/// Returns the selector as a query. The selector is valid: it was checked before.
fn query(selector: Option<&LabelSelector>) -> Selector {
    selector.cloned().and_then(|selector| selector.try_into().ok()).unwrap_or_default()
}
