//! Checks that the API server protects the annotations by which Podward deletes pods.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::{Api, Client};

use super::finding::Finding;

/// The binding of the chart's ValidatingAdmissionPolicy.
pub(in crate::commands) const POLICY_BINDING: &str = "podward-deletion-requests";

pub(super) async fn check(client: &Client) -> Result<Vec<Finding>> {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let binding = format!("ValidatingAdmissionPolicyBinding {POLICY_BINDING}");
    let found = bindings.get_opt(POLICY_BINDING).await.with_context(|| format!("read {binding}"))?;
    Ok(vec![match found {
        Some(_) => Finding::ok(format!("{binding} exists")),
        None => Finding::failed(
            format!(
                "{binding} is missing: who may patch a pod can write the annotations by which Podward deletes it"
            ),
            "run helm upgrade to restore it",
        ),
    }])
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use podward_support::api_answers::{failure, json_answer};
    use serde_json::json;

    use super::super::finding::FindingLevel;
    use super::*;
    use crate::api_server;

    #[tokio::test]
    async fn a_missing_binding_of_the_policy_fails() {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/podward-deletion-requests";
        for (path, level) in [(path, FindingLevel::Ok), ("/elsewhere", FindingLevel::Failed)] {
            let client = api_server::client(move |request| {
                Some(match request.uri().path() == path {
                    true => json_answer(&json!({"metadata": {"name": POLICY_BINDING}, "spec": {}})),
                    false => failure(StatusCode::NOT_FOUND, "NotFound"),
                })
            });
            let findings = check(&client).await.unwrap();
            assert!(findings.len() == 1 && findings[0].level == level, "{findings:?}");
        }
    }
}
