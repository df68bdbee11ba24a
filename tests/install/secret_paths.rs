//! The rotation of the secret in the paths of the webhooks.

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use podward_core::webhook_path::{PathSecret, WEBHOOK_PATH_SECRET, WebhookPathState};
use podward_support::{WAIT, await_condition, webhook_path_state, within};
use serde_json::json;

use super::site::{NAMESPACE, Site};

/// Waits for a rotation that ends the use of the secret `old`. Meanwhile both webhooks accept the old and the new path,
/// and after the overlap the old one is answered 404.
pub(crate) async fn old_and_new_work_during_a_rotation(site: &Site, old: PathSecret) -> Result<()> {
    let during = until(site, "the next secret to be used", |state| {
        state.current != old && state.accepted().any(|secret| *secret == old)
    })
    .await?;
    for secret in [&old, &during.current] {
        ensure!(answers(site, secret).await?.iter().all(|status| *status == StatusCode::OK), "{during:?}");
    }
    until(site, "the old secret to be refused", |state| state.accepted().all(|secret| *secret != old))
        .await?;
    // The webhooks read the Secret with a watch.
    within(WAIT, || "every replica to answer 404 to the old path".to_owned(), async {
        while answers(site, &old).await?.iter().any(|status| *status != StatusCode::NOT_FOUND) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    })
    .await
}

async fn until(
    site: &Site,
    what: &str,
    is_reached: impl Fn(&WebhookPathState) -> bool,
) -> Result<WebhookPathState> {
    let secrets: Api<Secret> = Api::namespaced(site.client(), NAMESPACE);
    let state = |secret: Option<&Secret>| webhook_path_state(secret?).ok().filter(|state| is_reached(state));
    let wait =
        await_condition(secrets, WEBHOOK_PATH_SECRET, |secret: Option<&Secret>| state(secret).is_some());
    let found = within(WAIT, || what.to_owned(), async { wait.await.context("watch a Secret") }).await?;
    state(found.as_ref()).context("the Secret is gone")
}

/// Sends a review that has no effect to every replica of both webhooks, and returns the status of each answer.
async fn answers(site: &Site, secret: &PathSecret) -> Result<Vec<StatusCode>> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "rotation", "operation": "CREATE", "name": "none", "namespace": "default", "dryRun": true,
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {"username": "test"},
            "object": {"metadata": {"name": "none"}, "spec": {"containers": []}}, "oldObject": null,
        },
    });
    let mut all = Vec::new();
    for webhook in site.webhooks().await? {
        let route = if webhook.server_name.starts_with("mutating") { "/mutate" } else { "/validate" };
        all.push(webhook.send(&secret.path(route), &review).await?.0);
    }
    ensure!(all.len() >= 4, "only {} replicas of the webhooks are ready", all.len());
    Ok(all)
}
