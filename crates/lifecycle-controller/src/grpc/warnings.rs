//! What is odd about a hook, though it may be meant so.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt};
use podward_api::{DeadlinePolicy, LifecycleHook, Phase};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};

/// Namespaces that are looked into for a pod; in more of them, nothing is said.
const NAMESPACES: u32 = 50;

/// What the hook's author should know. Never fails: what can't be found out now is left out.
pub(super) async fn warnings(client: &Client, hook: &LifecycleHook) -> Vec<String> {
    let spec = &hook.spec;
    let mut warnings = Vec::new();
    let has = |phase| spec.phases.contains(&phase);
    if !spec.operation_types.is_empty() && !has(Phase::PreCheck) && !has(Phase::PostCheck) {
        warnings.push(
            "operation_types concern only PRE_CHECK and POST_CHECK, which this hook is not asked".to_owned(),
        );
    }
    if spec.deadline_policy == DeadlinePolicy::Cancel && !has(Phase::PreCheck) && !has(Phase::Prepare) {
        warnings
            .push("in its phases there is nothing to undo: the deadline policy CANCEL is as HOLD".to_owned());
    }
    match matches_a_pod(client, hook).await {
        Ok(false) => warnings.push(format!(
            "it matches no pod at the moment; only pods with the label {CONTROL_LABEL}={CONTROL_VALUE} count"
        )),
        Ok(true) => {}
        Err(error) => {
            tracing::debug!(hook = hook.name_any(), "could not look for pods that a hook matches: {error}")
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
    let Some(namespaces) = &hook.spec.namespace_selector else {
        return some(&Api::all(client.clone()), &one).await;
    };
    let which = ListParams::default().labels_from(&query(Some(namespaces))).limit(NAMESPACES);
    let namespaces = Api::<Namespace>::all(client.clone()).list_metadata(&which).await?;
    for namespace in &namespaces.items {
        if some(&Api::namespaced(client.clone(), &namespace.name_any()), &one).await? {
            return Ok(true);
        }
    }
    // There are namespaces that were not looked into.
    Ok(namespaces.metadata.continue_.is_some_and(|next| !next.is_empty()))
}

async fn some(pods: &Api<Pod>, query: &ListParams) -> kube::Result<bool> {
    Ok(!pods.list_metadata(query).await?.items.is_empty())
}

/// The selector as a query; it has been checked before, so there is none that can't be one.
fn query(selector: Option<&LabelSelector>) -> Selector {
    selector.cloned().and_then(|selector| selector.try_into().ok()).unwrap_or_default()
}
