//! Waits for hooks.

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::Value;

use crate::wait::{WAIT, within};
use crate::watched::await_condition;

/// Waits until the hook `name` is registered and was reached. Pods that are created afterwards expect it from the
/// start.
pub(crate) async fn until_reachable(client: &Client, name: &str) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("podward.io", "v1alpha1", "LifecycleHook"));
    let hooks: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let wait = async {
        let reached =
            await_condition(hooks, name, |hook: Option<&DynamicObject>| hook.is_some_and(is_reachable));
        reached.await.map(drop).context("watch the hook")
    };
    within(WAIT, || format!("the hook {name} to be registered and reachable"), wait).await
}

fn is_reachable(hook: &DynamicObject) -> bool {
    let conditions = hook.data["status"]["conditions"].as_array();
    let is_true = |condition: &Value| condition["type"] == "Reachable" && condition["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(is_true))
}
