//! A workload that the command line names.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, Selector};
use kube::{Api, Client};

use crate::api::with_timeout;
use crate::workload_kind::WorkloadKind;

/// Returns the workload.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn find(
    client: &Client,
    namespace: &str,
    kind: WorkloadKind,
    name: &str,
) -> Result<DynamicObject> {
    let (group, version, kind_name) = kind.api();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind_name));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = with_timeout(api.get(name)).await;
    found.with_context(|| format!("look up {} {namespace}/{name}", kind.word()))
}

/// Returns the parameters of a list of the pods of `workload`.
///
/// # Errors
/// When its selector is not valid.
pub(crate) fn pods_of(workload: &DynamicObject) -> Result<ListParams> {
    let selector: LabelSelector =
        serde_json::from_value(workload.data["spec"]["selector"].clone()).unwrap_or_default();
    let selector = Selector::try_from(selector).context("read the selector of the workload")?;
    Ok(ListParams::default().labels_from(&selector))
}
