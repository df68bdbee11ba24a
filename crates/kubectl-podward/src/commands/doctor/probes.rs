//! Whether the webhooks answer, asked for real: the API server is made to call them by pods that are created as dry runs.
//!
//! A dry run of a delete would prove nothing: those are let through without asking.

mod answer;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use podward_core::keys::{AVAILABLE_CONDITIONS, CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};
use serde_json::json;

use self::answer::{MUTATING, VALIDATING};
use super::finding::Finding;
use super::hooks;
use super::site::Site;

/// What came of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The pod would have been made.
    Made {
        /// Whether the mutating webhook had its say.
        gated: bool,
    },
    /// It would not; the API server's words.
    Refused(String),
}

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let namespace = &site.probe_namespace;
    let found = hooks::list(&site.client).await?;
    let of_creates = found
        .iter()
        .flat_map(|found| &found.hooks)
        .filter(|hook| [MUTATING, VALIDATING].contains(&hook.name.as_str()));
    if of_creates.clone().any(|hook| hook.leaves_out(namespace)) {
        return Ok(vec![Finding::failed(
            format!("pods in namespace {namespace} are left alone, so nothing can be asked there"),
            "give a namespace that is not excluded: --probe-namespace, or the chart's doctor.probeNamespace",
        )]);
    }
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), namespace);
    let (good, bad) = tokio::join!(create(&pods, true), create(&pods, false));
    Ok(vec![answer::mutating(&good?, namespace), answer::validating(&bad?, namespace)])
}

/// Creates a pod as a dry run: one as it should be, or one that the validating webhook never lets pass.
async fn create(pods: &Api<Pod>, good: bool) -> Result<Outcome> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&dry_run, &pod(good)?).await {
        Ok(pod) => {
            let gates = pod.spec.and_then(|spec| spec.readiness_gates).unwrap_or_default();
            Ok(Outcome::Made { gated: gates.iter().any(|gate| gate.condition_type == SERVICE_READY_GATE) })
        }
        Err(kube::Error::Api(status)) => Ok(Outcome::Refused(status.message)),
        Err(error) => Err(error).context("create a pod as a dry run"),
    }
}

/// It never runs, and is as modest as the strictest rules of a namespace want it.
fn pod(good: bool) -> Result<Pod> {
    // Who expects what can't be read: a pod like this would never come into service.
    let annotations = if good { json!({}) } else { json!({AVAILABLE_CONDITIONS: "no JSON, by intent"}) };
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
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    });
    serde_json::from_value(pod).context("write a pod")
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
