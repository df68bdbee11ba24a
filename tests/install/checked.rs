//! The doctor, in the cluster with `helm test` and from outside as the plugin of kubectl. It finds no problem after
//! the installation, and then reports one broken part after the other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podward_support::within;
use serde_json::{Value, json};

use super::{job_rights, site::Site};

/// The time until a change takes effect.
const LONG: Duration = Duration::from_secs(60);

/// The result of the doctor.
#[derive(Debug)]
struct DoctorVerdict {
    is_well: bool,
    /// The failed checks, each with a fix.
    failed: Vec<String>,
}

impl DoctorVerdict {
    fn names(&self, words: &str) -> bool {
        self.failed.iter().any(|failed| failed.contains(words))
    }
}

async fn ask(site: &Site) -> Result<DoctorVerdict> {
    let output = site.plugin(&["doctor", "--output=json"]).await?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("read what the doctor says: {}", String::from_utf8_lossy(&output.stderr)))?;
    let checks = report["checks"].as_array().context("a report without checks")?;
    let findings = checks.iter().flat_map(|check| check["findings"].as_array().into_iter().flatten());
    let failed: Vec<_> = findings
        .filter(|finding| finding["level"] == "failed")
        .map(|finding| format!("{} -> {}", finding["what"], finding["next"]))
        .collect();
    ensure!(output.status.success() == failed.is_empty(), "it ended with {}: {report}", output.status);
    Ok(DoctorVerdict { is_well: output.status.success(), failed })
}

/// Runs the doctor until the result is right. A change takes effect with a delay.
async fn until(site: &Site, what: &str, is_right: impl Fn(&DoctorVerdict) -> bool) -> Result<()> {
    let mut last = None;
    let asked = within(LONG, || format!("the doctor to say that {what}"), async {
        loop {
            let verdict = ask(site).await?;
            if is_right(&verdict) {
                return Ok(());
            }
            last = Some(verdict);
        }
    })
    .await;
    asked.with_context(|| format!("it said last: {last:?}"))
}

pub(crate) async fn broken_parts_are_reported(site: &Site) -> Result<()> {
    let tested = site.helm(&["test", "podward", "--timeout", "2m"]).await?;
    ensure!(tested.contains("Succeeded"), "{tested}");
    job_rights::are_all_used(site, job_rights::DOCTOR)?;
    let output = site.plugin(&["doctor"]).await?;
    let table = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && table.contains("✓ ok") && !table.contains("✗ failed"), "{table}");
    // Certificates can be checked from outside, but not from inside.
    ensure!(table.contains("the certificate of validating-webhook is valid for"), "{table}");
    ensure!(
        table.contains("! warning images referenced by tags") && table.contains(&site.webhook_image()),
        "{table}"
    );
    ensure!(table.contains("the kube-proxies of all nodes are read: 1 directly"), "{table}");
    network_policies(site).await?;

    a_service_that_is_down(site).await?;
    a_right_that_is_missing(site).await?;
    a_webhook_that_leads_nowhere(site).await?;
    another_podward(site).await?;
    until(site, "all is well", |verdict| verdict.is_well).await
}

/// By default there are no NetworkPolicies. `helm test` accepts the warning.
async fn network_policies(site: &Site) -> Result<()> {
    let output = site.plugin(&["doctor"]).await?;
    let table = String::from_utf8_lossy(&output.stdout);
    ensure!(table.contains("! warning no NetworkPolicy selects the pods of lifecycle-controller"), "{table}");
    let peers = json!([{"podSelector": {}}, {"ipBlock": {"cidr": "0.0.0.0/0"}}]);
    let policy = json!({
        "metadata": {"name": "all"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]},
    });
    let policy: k8s_openapi::api::networking::v1::NetworkPolicy = serde_json::from_value(policy)?;
    let api = kube::Api::namespaced(site.client(), super::site::NAMESPACE);
    api.create(&kube::api::PostParams::default(), &policy).await.context("make a NetworkPolicy")?;
    let output = site.plugin(&["doctor"]).await?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    api.delete("all", &kube::api::DeleteParams::default()).await.context("delete the NetworkPolicy")?;
    ensure!(
        table.contains("✓ ok      NetworkPolicies restrict the peers of lifecycle-controller"),
        "{table}"
    );
    Ok(())
}

async fn a_service_that_is_down(site: &Site) -> Result<()> {
    site.kubectl(&["scale", "deployment", "validating-webhook", "--replicas=0"]).await?;
    let selector = "--selector=app.kubernetes.io/name=validating-webhook";
    site.kubectl(&["wait", "pods", selector, "--for=delete", "--timeout=60s"]).await?;
    let named = until(site, "the validating-webhook is away", |verdict| {
        verdict.names("validating-webhook is scaled to 0")
            && verdict.names("Service validating-webhook has no ready endpoint")
            && verdict.names("the API server cannot call the validating-webhook")
            && verdict.names("--replicas=2")
    })
    .await;
    let tested = site.helm(&["test", "podward", "--timeout", "2m"]).await;
    site.kubectl(&["scale", "deployment", "validating-webhook", "--replicas=2"]).await?;
    site.kubectl(&["rollout", "status", "deployment/validating-webhook", "--timeout=90s"]).await?;
    named?;
    ensure!(tested.is_err(), "helm test passes without the validating-webhook");
    until(site, "all is well", |verdict| verdict.is_well).await
}

async fn a_right_that_is_missing(site: &Site) -> Result<()> {
    let role = ["clusterrole", "podward-traffic-controller"];
    let found = site.kubectl(&[&["get"], &role[..], &["--output=json"]].concat()).await?;
    let found: Value = serde_json::from_str(&found).context("read a ClusterRole")?;
    let rule = &found["rules"][0];
    ensure!(rule["resources"] == json!(["endpointslices"]), "another rule comes first: {rule}");
    let patch = |operation: Value| format!("--patch={}", json!([operation]));
    let remove = patch(json!({"op": "remove", "path": "/rules/0"}));
    let add = patch(json!({"op": "add", "path": "/rules/0", "value": rule}));
    site.kubectl(&[&["patch"], &role[..], &["--type=json", &remove]].concat()).await?;
    let named = until(site, "the traffic-controller lacks a right", |verdict| {
        verdict.names("traffic-controller may not list, watch endpointslices.discovery.k8s.io")
    })
    .await;
    site.kubectl(&[&["patch"], &role[..], &["--type=json", &add]].concat()).await?;
    named
}

async fn a_webhook_that_leads_nowhere(site: &Site) -> Result<()> {
    let target = ["patch", "validatingwebhookconfiguration", "podward-validating", "--type=json"];
    let to = |service: &str| {
        let place = "/webhooks/0/clientConfig/service/name";
        format!("--patch={}", json!([{"op": "replace", "path": place, "value": service}]))
    };
    site.kubectl(&[&target[..], &[&to("nowhere")]].concat()).await?;
    let named = until(site, "a webhook leads nowhere", |verdict| {
        verdict.names("create.validating.podward.io calls Service podward-system/nowhere instead of")
            && verdict.names("the API server cannot call the validating-webhook: its Service does not exist")
    })
    .await;
    site.kubectl(&[&target[..], &[&to("validating-webhook")]].concat()).await?;
    named
}

async fn another_podward(site: &Site) -> Result<()> {
    let name = "podward-old";
    let webhook = json!({
        "name": "delete.old.podward.io",
        "clientConfig": {"service": {"namespace": "old", "name": "validating-webhook"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}],
        // No webhook is called.
        "objectSelector": {"matchLabels": {"example.com/none": "none"}},
        "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    let configuration: k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration =
        serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": [webhook]}))?;
    let api = kube::Api::all(site.client());
    api.create(&kube::api::PostParams::default(), &configuration).await.context("make a webhook")?;
    let named = until(site, "there is another Podward", |verdict| {
        verdict
            .names("another Podward: webhook configuration podward-old calls Service old/validating-webhook")
    })
    .await;
    api.delete(name, &kube::api::DeleteParams::default()).await.context("delete the webhook")?;
    named
}
