//! Checks that the webhooks answer, by creating pods as dry runs: the API server calls the webhooks for them.
//!
//! Dry runs of deletes are not used: the webhook allows them without a decision.

mod answer;
mod outcome;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use podward_core::keys::{AVAILABLE_CONDITIONS, CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};
use podward_core::webhook_path::without_webhook_secrets;
use serde_json::json;

use self::answer::{MUTATING, VALIDATING};
use self::outcome::ProbeOutcome;
use super::configurations;
use super::finding::Finding;
use super::target::DoctorTarget;

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let namespace = &target.probe_namespace;
    let found = configurations::list(&target.client).await?;
    let of_creates = found
        .iter()
        .flat_map(|found| &found.hooks)
        .filter(|hook| [MUTATING, VALIDATING].contains(&hook.name.as_str()));
    if of_creates.clone().any(|hook| hook.excludes(namespace)) {
        return Ok(vec![Finding::failed(
            format!("Podward excludes the namespace {namespace}, so webhooks cannot be tested there"),
            "set --probe-namespace, or the chart's doctor.probeNamespace, to a namespace that is not excluded",
        )]);
    }
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), namespace);
    let (good, bad) = tokio::join!(create(&pods, true), create(&pods, false));
    Ok(vec![answer::mutating(&good?, namespace), answer::validating(&bad?, namespace)])
}

/// Creates a pod as a dry run. The validating webhook allows the pod if `good` is true, and always denies it otherwise.
///
/// # Errors
/// When the API server does not answer.
async fn create(pods: &Api<Pod>, good: bool) -> Result<ProbeOutcome> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&dry_run, &pod(good)?).await {
        Ok(pod) => {
            let gates = pod.spec.and_then(|spec| spec.readiness_gates).unwrap_or_default();
            Ok(ProbeOutcome::Created {
                gated: gates.iter().any(|gate| gate.condition_type == SERVICE_READY_GATE),
            })
        }
        Err(kube::Error::Api(status)) => {
            // The message about a failed call contains the path of the webhook.
            Ok(ProbeOutcome::Refused(without_webhook_secrets(&status.message).into_owned()))
        }
        Err(error) => Err(error).context("create a pod as a dry run"),
    }
}

/// Returns a pod that never runs. It satisfies the strictest pod security standard and has small resource limits.
fn pod(good: bool) -> Result<Pod> {
    // A pod whose expected finalizers cannot be parsed would never become available.
    let annotations = if good { json!({}) } else { json!({AVAILABLE_CONDITIONS: "no JSON, intentionally"}) };
    let limits = json!({"cpu": "10m", "memory": "16Mi"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "podward-doctor-",
            "labels": {CONTROL_LABEL: CONTROL_VALUE, "app.kubernetes.io/name": "podward-doctor"},
            "annotations": annotations,
        },
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "nothing", "image": "podward.invalid/nothing:0",
                "resources": {"requests": limits, "limits": limits},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    });
    serde_json::from_value(pod).context("build a pod")
}

#[cfg(test)]
mod tests {
    use podward_core::{ReviewPolicy, Writer, review, review_raw};

    use super::*;

    /// The engine's own judgement: what the probe counts on.
    #[test]
    fn one_pod_is_always_taken_and_the_other_never() {
        for good in [true, false] {
            let pod: podward_core::Pod =
                serde_json::from_value(serde_json::to_value(pod(good).unwrap()).unwrap()).unwrap();
            let writer = Writer { username: "jane", groups: &[] };
            for strict in [true, false] {
                let policy = ReviewPolicy { strict, trusted: vec!["jane".to_owned()] };
                // The mutating webhook leaves it to the validating one.
                assert!(review_raw(None, &pod, &writer, &policy).denials.is_empty());
                assert_eq!(review(None, &pod, &writer, &policy).denials.is_empty(), good);
            }
        }
    }
}
