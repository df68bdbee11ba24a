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

use super::super::doctor::PART_OF;
use super::names::is_about_service;
use super::redact::{Keep, redacted};
use crate::api::{list_all, with_timeout};

/// The files that are read at a time.
const AT_A_TIME: usize = 4;
/// The largest log, in bytes.
const LOG_BYTES: i64 = 4 << 20;

/// Which objects of a kind are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selected {
    /// All of the cluster.
    All,
    /// Those of the cluster that have opted in.
    OptedIn,
    /// Those in Podward's namespace with the label of the chart. Others may run there, too.
    Labelled,
    /// Those in Podward's namespace with the name of a service, or about an object with such a name.
    Named,
}

/// A list to collect.
struct Listed {
    file: &'static str,
    kind: (&'static str, &'static str, &'static str),
    selected: Selected,
    keep: Keep,
}

const fn of_cluster(file: &'static str, kind: (&'static str, &'static str, &'static str)) -> Listed {
    Listed { file, kind, selected: Selected::All, keep: Keep::All }
}

const fn labelled(file: &'static str, kind: (&'static str, &'static str, &'static str)) -> Listed {
    Listed { file, kind, selected: Selected::Labelled, keep: Keep::All }
}

const fn named(file: &'static str, kind: (&'static str, &'static str, &'static str)) -> Listed {
    Listed { file, kind, selected: Selected::Named, keep: Keep::All }
}

const LISTS: [Listed; 13] = [
    Listed { keep: Keep::Status, ..of_cluster("nodes.json", ("", "v1", "Node")) },
    labelled("deployments.json", ("apps", "v1", "Deployment")),
    labelled("pods.json", ("", "v1", "Pod")),
    named("events.json", ("", "v1", "Event")),
    named("leases.json", ("coordination.k8s.io", "v1", "Lease")),
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
    Listed {
        keep: Keep::WithoutTemplate,
        ..of_cluster("clonesets.json", ("apps.kruise.io", "v1alpha1", "CloneSet"))
    },
    Listed {
        selected: Selected::OptedIn,
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
    let api: Api<DynamicObject> = match listed.selected {
        Selected::Labelled | Selected::Named => Api::namespaced_with(client.clone(), namespace, &resource),
        Selected::All | Selected::OptedIn => Api::all_with(client.clone(), &resource),
    };
    let params = match listed.selected {
        Selected::OptedIn => ListParams::default().labels(&format!("{CONTROL_LABEL}={CONTROL_VALUE}")),
        Selected::Labelled => ListParams::default().labels(PART_OF),
        Selected::All | Selected::Named => ListParams::default(),
    };
    let mut objects = Vec::new();
    for object in list_all(&api, params).await? {
        let object = serde_json::to_value(object).context("convert an object")?;
        if listed.selected != Selected::Named || is_about_service(&object) {
            objects.push(redacted(object, listed.keep));
        }
    }
    Ok(format!("{:#}\n", Value::Array(objects)))
}

/// The logs of Podward's containers, and those of their previous runs.
async fn logs(client: &Client, namespace: &str, lines: u32) -> Result<Vec<(String, Result<String>)>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found =
        list_all(&pods, ListParams::default().labels(PART_OF)).await.context("list Podward's pods")?;
    let mut wanted = Vec::new();
    for pod in found {
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

#[cfg(test)]
mod tests {
    use podward_support::api_answers::{failure, json_answer};

    use super::*;
    use crate::api_server;

    /// A namespace in which something else runs, too.
    fn answers(request: &hyper::Request<hyper::body::Bytes>) -> Option<podward_support::api_answers::Answer> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let pod = |name: &str| {
            json!({
                "metadata": {"name": name, "namespace": "podward-system"},
                "status": {"containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                }]},
            })
        };
        let object = |name: &str| json!({"metadata": {"name": name}});
        let event = |name: &str| json!({"metadata": {"name": "e"}, "involvedObject": {"name": name}});
        let list = |items: Vec<Value>, token: &str| {
            Some(json_answer(&json!({"kind": "List", "metadata": {"continue": token}, "items": items})))
        };
        let is_labelled = query.contains("labelSelector=app.kubernetes.io%2Fpart-of%3Dpodward");
        match path {
            "/api/v1/namespaces/podward-system/pods" if !is_labelled => list(vec![pod("theirs")], ""),
            "/api/v1/namespaces/podward-system/pods" if query.contains("continue=") => {
                list(vec![pod("b")], "")
            }
            "/api/v1/namespaces/podward-system/pods" => list(vec![pod("a")], "next"),
            "/api/v1/namespaces/podward-system/events" => {
                list(vec![event("lifecycle-controller-7f-x"), event("theirs")], "")
            }
            "/apis/coordination.k8s.io/v1/namespaces/podward-system/leases" => {
                list(vec![object("lifecycle-controller"), object("theirs")], "")
            }
            _ if path.ends_with("/log") => Some(json_answer(&json!("a line"))),
            _ => Some(failure(hyper::StatusCode::NOT_FOUND, "NotFound")),
        }
    }

    #[tokio::test]
    async fn what_else_runs_in_the_namespace_is_not_collected() {
        let files = collect(&api_server::client(answers), "podward-system", 10).await;
        let logs: Vec<&str> =
            files.iter().map(|(file, _)| file.as_str()).filter(|file| file.starts_with("logs")).collect();
        assert_eq!(logs, ["logs/a-c.log", "logs/b-c.log"]);
        for (file, words) in [
            ("pods.json", "\"b\""),
            ("events.json", "lifecycle-controller-7f-x"),
            ("leases.json", "lifecycle-controller"),
        ] {
            let (_, text) = files.iter().find(|(name, _)| name == file).unwrap();
            let text = text.as_ref().unwrap();
            assert!(text.contains(words) && !text.contains("theirs"), "{file}: {text}");
        }
    }
}
