//! What is collected.

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_core::webhook_path::without_webhook_secrets;
use serde_json::{Value, json};

use super::redact::{Keep, redacted};
use crate::api::{list_all, with_timeout};

/// The files that are read at a time.
const AT_A_TIME: usize = 4;
/// The largest log, in bytes.
const LOG_BYTES: i64 = 4 << 20;

/// A list to collect.
struct Listed {
    file: &'static str,
    kind: (&'static str, &'static str, &'static str),
    /// Whether only the objects in Podward's namespace.
    ours: bool,
    labels: &'static str,
    keep: Keep,
}

const fn of_cluster(file: &'static str, kind: (&'static str, &'static str, &'static str)) -> Listed {
    Listed { file, kind, ours: false, labels: "", keep: Keep::All }
}

const fn ours(file: &'static str, kind: (&'static str, &'static str, &'static str)) -> Listed {
    Listed { file, kind, ours: true, labels: "", keep: Keep::All }
}

const LISTS: [Listed; 13] = [
    Listed { keep: Keep::Status, ..of_cluster("nodes.json", ("", "v1", "Node")) },
    ours("deployments.json", ("apps", "v1", "Deployment")),
    ours("pods.json", ("", "v1", "Pod")),
    ours("events.json", ("", "v1", "Event")),
    ours("leases.json", ("coordination.k8s.io", "v1", "Lease")),
    of_cluster(
        "mutating-webhooks.json",
        ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ),
    of_cluster(
        "validating-webhooks.json",
        ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ),
    of_cluster("lifecycle-hooks.json", ("podward.io", "v1alpha1", "LifecycleHook")),
    of_cluster("rules.json", ("apps.kusionstack.io", "v1alpha1", "PodTransitionRule")),
    of_cluster("bindings.json", ("podward.io", "v1alpha1", "DiscoveryBinding")),
    of_cluster("registries.json", ("podward.io", "v1alpha1", "ClusterRegistry")),
    of_cluster("clonesets.json", ("apps.kruise.io", "v1alpha1", "CloneSet")),
    Listed {
        labels: CONTROL_LABEL,
        keep: Keep::Protocol,
        ..of_cluster("opted-in-pods.json", ("", "v1", "Pod"))
    },
];

/// Returns the files and their contents. What cannot be read is an error of that file.
pub(super) async fn collect(
    client: &Client,
    namespace: &str,
    log_lines: u32,
) -> Vec<(String, Result<String>)> {
    let lists = stream::iter(&LISTS).map(async |listed| {
        let text = list(client, namespace, listed).await;
        (listed.file.to_owned(), text.with_context(|| format!("list {}s", listed.kind.2)))
    });
    let mut files: Vec<_> = lists.buffered(AT_A_TIME).collect().await;
    let version = client.apiserver_version().await.context("read the version of the API server");
    let version =
        version.map(|found| json!({"kubernetes": found.git_version, "podward": env!("CARGO_PKG_VERSION")}));
    files.push(("versions.json".to_owned(), version.map(|version| format!("{version:#}"))));
    match logs(client, namespace, log_lines).await {
        Ok(logs) => files.extend(logs),
        Err(error) => files.push(("logs".to_owned(), Err(error))),
    }
    files
}

async fn list(client: &Client, namespace: &str, listed: &Listed) -> Result<String> {
    let (group, version, kind) = listed.kind;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match listed.ours {
        true => Api::namespaced_with(client.clone(), namespace, &resource),
        false => Api::all_with(client.clone(), &resource),
    };
    let mut params = ListParams::default();
    if !listed.labels.is_empty() {
        params = params.labels(&format!("{}={CONTROL_VALUE}", listed.labels));
    }
    let mut objects = Vec::new();
    for object in list_all(&api, params).await? {
        objects.push(redacted(serde_json::to_value(object).context("convert an object")?, listed.keep));
    }
    Ok(format!("{:#}\n", Value::Array(objects)))
}

/// The logs of Podward's containers, and those of their previous runs.
async fn logs(client: &Client, namespace: &str, lines: u32) -> Result<Vec<(String, Result<String>)>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = with_timeout(pods.list(&ListParams::default())).await.context("list Podward's pods")?;
    let mut wanted = Vec::new();
    for pod in found.items {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        for status in statuses.unwrap_or_default() {
            let restarted = (status.restart_count > 0).then_some(true);
            wanted.extend(
                [Some(false), restarted]
                    .into_iter()
                    .flatten()
                    .map(|previous| (pod.name_any(), status.name.clone(), previous)),
            );
        }
    }
    let read = stream::iter(wanted).map(async |(pod, container, previous)| {
        let params = LogParams {
            container: Some(container.clone()),
            previous,
            tail_lines: Some(i64::from(lines)),
            limit_bytes: Some(LOG_BYTES),
            timestamps: true,
            ..LogParams::default()
        };
        let log = with_timeout(pods.logs(&pod, &params)).await;
        let text = log.map(|log| without_webhook_secrets(&log).into_owned());
        let suffix = if previous { ".previous" } else { "" };
        (format!("logs/{pod}-{container}{suffix}.log"), text.context("read the log"))
    });
    Ok(read.buffered(AT_A_TIME).collect().await)
}
