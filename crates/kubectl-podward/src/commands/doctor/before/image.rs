//! Whether nodes can pull an image: a pod that runs it.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use podward_diagnosis::pod::diagnose;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::super::finding::Finding;
use crate::api::with_timeout;
use crate::gather::Gatherer;

/// The pause between two looks at the pod. A watch would not show its events.
const PAUSE: Duration = Duration::from_millis(500);
/// What is left of the deadline of the check to delete the pod and to find out what it waits for.
const RESERVE: Duration = Duration::from_secs(5);
/// A container that cannot start is looked at as soon as its error is known.
const WAITING: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerError",
    "RunContainerError",
];
/// The reasons of containers whose program did not start.
const NOT_STARTED: [&str; 2] = ["StartError", "ContainerCannotRun"];

/// Runs a pod with the image, and deletes it in every case. `deadline` is that of the check.
///
/// # Errors
/// When the pod cannot be created, read or deleted.
pub(super) async fn check(
    client: &Client,
    image: &str,
    namespace: &str,
    deadline: Duration,
) -> Result<Vec<Finding>> {
    let until = Instant::now() + deadline.saturating_sub(RESERVE.min(deadline / 4));
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = serde_json::from_value(json!({
        "metadata": {"generateName": "podward-image-", "labels": {"app.kubernetes.io/name": "podward-image-check"}},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false, "activeDeadlineSeconds": 300,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "image", "image": image, "args": ["--version"],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    }))
    .context("describe a pod")?;
    let made = pods.create(&PostParams::default(), &pod).await;
    let mut last =
        made.with_context(|| format!("create a pod with the image {image} in namespace {namespace}"))?;
    let name = last.name_any();
    let watched = timeout_at(until, watch(&pods, image, &mut last)).await;
    let deleted = with_timeout(pods.delete(&name, &DeleteParams::default().grace_period(0))).await;
    let finding = match watched {
        Ok(found) => found.with_context(|| format!("read pod {namespace}/{name}"))?,
        Err(_) => None,
    };
    let finding = match finding {
        Some(finding) => finding,
        None => cause(client, last, image).await,
    };
    deleted.with_context(|| {
        format!("delete pod {namespace}/{name}; delete it yourself: kubectl -n {namespace} delete pod {name}")
    })?;
    Ok(vec![finding])
}

/// Waits until the container was started, or its error is known: then it returns `None`. `last` is the pod as it was seen
/// last.
async fn watch(pods: &Api<Pod>, image: &str, last: &mut Pod) -> Result<Option<Finding>> {
    let name = last.name_any();
    loop {
        *last = pods.get(&name).await?;
        let state = last
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref()?.first()?.state.clone());
        match judge(&state.unwrap_or_default(), image) {
            Judged::Pending => tokio::time::sleep(PAUSE).await,
            Judged::Waits => return Ok(None),
            Judged::Done(finding) => return Ok(Some(finding)),
        }
    }
}

/// What the state of the container says.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// Nothing yet.
    Pending,
    /// It does not start. The cause is in other objects, too.
    Waits,
    Done(Finding),
}

fn judge(state: &ContainerState, image: &str) -> Judged {
    let started = format!("the image {image} was pulled and started");
    if state.running.is_some() {
        return Judged::Done(Finding::ok(started));
    }
    if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().unwrap_or_default();
        let message = ended.message.as_deref().unwrap_or("the container runtime says no more");
        return Judged::Done(match ended.exit_code {
            _ if NOT_STARTED.contains(&reason) => Finding::failed(
                format!("the image {image} was pulled, but its program did not start ({reason}): {message}"),
                "check that it is the image of kubectl-podward, for the architecture of the nodes",
            ),
            0 => Finding::ok(started),
            code => Finding::warning(
                format!("{started}, but `--version` ended with exit code {code} ({reason})"),
                "check that it is the image of kubectl-podward, for the architecture of the nodes",
            ),
        });
    }
    let reason = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
    if reason.is_some_and(|reason| WAITING.contains(&reason)) { Judged::Waits } else { Judged::Pending }
}

/// Says why a pod has not started.
async fn cause(client: &Client, pod: Pod, image: &str) -> Finding {
    let snapshot = Gatherer::new(client).snapshot(pod).await;
    match diagnose(&snapshot, None).into_iter().next() {
        Some(cause) => Finding::failed(cause.what, cause.next),
        None => Finding::failed(
            format!("a pod with the image {image} has not started before the deadline of the check"),
            "set a longer --deadline",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::super::finding::FindingLevel;
    use super::*;

    fn judged(state: Value) -> Judged {
        judge(&serde_json::from_value(state).unwrap(), "r/x:1")
    }

    fn finding(state: Value) -> (FindingLevel, String) {
        match judged(state.clone()) {
            Judged::Done(finding) => (finding.level, finding.what),
            other => panic!("{state}: {other:?}"),
        }
    }

    #[test]
    fn only_a_program_that_started_is_ok() {
        let ok = (FindingLevel::Ok, "the image r/x:1 was pulled and started".to_owned());
        assert_eq!(finding(json!({"running": {}})), ok);
        assert_eq!(finding(json!({"terminated": {"exitCode": 0, "reason": "Completed"}})), ok);
        let (level, what) = finding(json!({"terminated": {"exitCode": 2, "reason": "Error"}}));
        assert!(level == FindingLevel::Warning && what.ends_with("exit code 2 (Error)"), "{what}");
        for reason in NOT_STARTED {
            let message = "exec: no such file";
            let state = json!({"terminated": {"exitCode": 128, "reason": reason, "message": message}});
            let (level, what) = finding(state);
            assert!(level == FindingLevel::Failed && what.ends_with(message), "{what}");
        }
    }

    #[test]
    fn a_container_that_cannot_start_is_not_waited_for() {
        for reason in WAITING {
            assert_eq!(judged(json!({"waiting": {"reason": reason}})), Judged::Waits, "{reason}");
        }
        assert_eq!(judged(json!({"waiting": {"reason": "ContainerCreating"}})), Judged::Pending);
        assert_eq!(judged(json!({})), Judged::Pending);
    }
}
