//! Pods that admission webhooks and admission policies refuse.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::PostParams;
use podward_e2e::{Fixture, NAMESPACE_NAME, Test};
use podward_support::{WAIT, within};
use serde_json::{Value, json};

use super::asked::{create, delete, deployment, pod, server, until_first_line, until_said};
use crate::rules::server::{RuleWebhook, WebhookReply};

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// The name of the webhook.
const WEBHOOK: &str = "policy.example.com";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_a_webhook_denies_pods", denies),
        Test::simulated("why_a_webhook_of_a_service_does_not_answer", of_a_service),
        Test::simulated("why_a_webhook_at_a_url_does_not_answer", at_a_url),
        Test::simulated("why_an_admission_policy_denies_pods", policy),
    ]
}

/// Creates a ValidatingWebhookConfiguration for the pods of the namespace, with one webhook. Returns its name.
async fn configure(fixture: &Fixture, client: Value) -> Result<String> {
    let namespace = fixture.namespace();
    let name = format!("{namespace}-policy");
    create(
        fixture,
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": WEBHOOK, "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": client, "timeoutSeconds": 1,
                "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}},
                // Only the pods of the Deployment.
                "objectSelector": {"matchLabels": {"app": "web"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            }],
        }),
    )
    .await?;
    Ok(name)
}

/// The webhook is an HTTPS server that answers the review.
async fn denies(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.answer(|request| {
        let status = json!({"code": 403, "message": "pods need the label owner"});
        let response = json!({"uid": request.body["request"]["uid"], "allowed": false, "status": status});
        WebhookReply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
        }))
    });
    let url = webhook.url("/check");
    let configuration = configure(&fixture, json!({"url": url, "caBundle": webhook.ca_bundle()})).await?;
    deployment(&fixture, server(&fixture, json!({}), json!({})), json!({})).await?;
    let words =
        format!("cannot create pods: admission webhook {WEBHOOK} denies them: pods need the label owner");
    let place = format!("  ValidatingWebhookConfiguration {configuration}: {url}");
    let said = until_said(&fixture, "deploy/web", &words, &[&place]).await;
    let json = fixture.plugin(&["why", "deploy/web", "--output=json"]).await;
    delete(&fixture, "validatingwebhookconfiguration", &configuration).await?;
    let said = said?;
    let next = format!("next: kubectl -n {} edit deployment/web", fixture.namespace());
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    let json: Value = serde_json::from_str(&json?.succeeded()?.said)?;
    ensure!(json["causes"][0]["case"] == "WebhookDenied", "{json}");
    Ok(())
}

/// First nothing is behind the Service, then a pod that does not answer.
async fn of_a_service(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let namespace = fixture.namespace().to_owned();
    create(
        &fixture,
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "policy"},
            "spec": {"selector": {"app": "policy"}, "ports": [{"port": 443}]},
        }),
    )
    .await?;
    let service = json!({"service": {"namespace": namespace, "name": "policy"}});
    let configuration = configure(&fixture, service).await?;
    let asked = async {
        deployment(&fixture, server(&fixture, json!({}), json!({})), json!({})).await?;
        let words = |endpoints: &str| {
            format!(
                "cannot create pods: admission webhook {WEBHOOK} (Service {namespace}/policy, {endpoints}) does not answer: "
            )
        };
        let said = until_first_line(&fixture, "deploy/web", &words("no endpoint")).await?;
        pod(&fixture, "policy", json!({}), json!({})).await?;
        until_first_line(&fixture, "deploy/web", &words("1 of 1 endpoints ready")).await?;
        anyhow::Ok(said)
    };
    let said = asked.await;
    delete(&fixture, "validatingwebhookconfiguration", &configuration).await?;
    let said = said?;
    let next =
        format!("next: kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name=policy");
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    ensure!(said.contains(&format!("  ValidatingWebhookConfiguration {configuration}: ")), "{said}");
    Ok(())
}

async fn at_a_url(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let webhook = RuleWebhook::start(&fixture).await?;
    webhook.shut_down().await?;
    let url = webhook.url("/check");
    let configuration = configure(&fixture, json!({"url": url, "caBundle": webhook.ca_bundle()})).await?;
    let asked = async {
        deployment(&fixture, server(&fixture, json!({}), json!({})), json!({})).await?;
        let words =
            format!("cannot create pods: admission webhook {WEBHOOK} ({url}) does not answer: dial tcp ");
        until_first_line(&fixture, "deploy/web", &words).await
    };
    let said = asked.await;
    delete(&fixture, "validatingwebhookconfiguration", &configuration).await?;
    let said = said?;
    let first = said.lines().next().unwrap_or_default();
    let next = format!("; next: kubectl describe validatingwebhookconfiguration {configuration}");
    ensure!(first.contains(": connect: connection refused") && first.ends_with(&next), "{said}");
    Ok(())
}

async fn policy(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let name = format!("{}-owner", fixture.namespace());
    let group = "admissionregistration.k8s.io/v1";
    create(
        &fixture,
        json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: fixture.namespace()}},
                    "resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
                    ],
                },
                "validations": [{"expression": "'owner' in object.metadata.labels", "message": "pods need the label owner"}],
            },
        }),
    )
    .await?;
    create(
        &fixture,
        json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    )
    .await?;
    let asked = async {
        until_refused(&fixture, "pods need the label owner").await?;
        deployment(&fixture, server(&fixture, json!({}), json!({})), json!({})).await?;
        let words = format!(
            "cannot create pods: ValidatingAdmissionPolicy {name} denies them: pods need the label owner"
        );
        until_first_line(&fixture, "deploy/web", &words).await
    };
    let said = asked.await;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        delete(&fixture, kind, &name).await?;
    }
    let said = said?;
    let next = format!("next: kubectl -n {} edit deployment/web", fixture.namespace());
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    Ok(())
}

/// Waits until pods are refused with these words. A policy is in effect a moment after it was created.
async fn until_refused(fixture: &Fixture, words: &str) -> Result<()> {
    let probe = fixture.pod("probe", &json!({"app": "probe"}), &json!({}))?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let refused = async {
        loop {
            match fixture.api().create(&params, &probe).await {
                Err(kube::Error::Api(status)) if status.message.contains(words) => return Ok(()),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    within(WAIT, || "the policy to be in effect".to_owned(), refused).await
}
