//! Reviews that the API server has not sent.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use kube::ResourceExt;
use podward_core::keys::DELETION_REQUEST;
use podward_e2e::{Fixture, Test, forged_delete, forged_eviction};
use podward_support::{ServiceKind, webhook_paths};
use serde_json::Value;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("a_forged_review_deletes_nothing", a_forged_review_deletes_nothing)]
}

/// Whoever reaches the port of the validating-webhook sends reviews of a delete and of an eviction in the name of an
/// administrator. Without the secret in the path they are answered 404, and the pod stays as it is.
async fn a_forged_review_deletes_nothing(fixture: Arc<Fixture>) -> Result<()> {
    let _traffic = fixture.traffic();
    fixture.in_service(["victim"]).await?;
    let before = fixture.api().get("victim").await.context("read the pod")?;
    let (namespace, old) = (fixture.namespace(), serde_json::to_value(&before)?);
    let mut unbound = old.clone();
    if let Some(metadata) = unbound["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    let webhooks = fixture.podward()?.services(ServiceKind::ValidatingWebhook);
    ensure!(!webhooks.is_empty(), "there is no validating-webhook to attack");
    for webhook in &webhooks {
        let reachable = fixture.podward()?.reachable(webhook).await?;
        let guess = format!("/{}", "0".repeat(64));
        for prefix in ["", "/", "/v1", &guess] {
            let attacks: [(&str, Value); 4] = [
                ("/delete", forged_delete(namespace, "victim", &old, false)),
                ("/delete", forged_delete(namespace, "victim", &unbound, false)),
                ("/evict", forged_eviction(namespace, "victim", false)),
                ("/validate", forged_delete(namespace, "victim", &old, false)),
            ];
            for (route, review) in attacks {
                let (status, body) = reachable.send(&format!("{prefix}{route}"), &review).await?;
                ensure!(
                    status == StatusCode::NOT_FOUND,
                    "{webhook}: {prefix}{route} is answered {status} {body}"
                );
            }
        }
        // With the secret, which only administrators can read, the same dry runs are decided. So the test can fail.
        let current = webhook_paths(fixture.client()).await?.current;
        for (route, review) in [
            ("/delete", forged_delete(namespace, "victim", &old, true)),
            ("/evict", forged_eviction(namespace, "victim", true)),
        ] {
            let (status, body) = reachable.send(&current.path(route), &review).await?;
            ensure!(status == StatusCode::OK, "{webhook}: {route} is answered {status} {body}");
        }
        let metrics = webhook.metrics().await?;
        let counted = metrics.lines().find_map(|line| {
            line.strip_prefix("podward_admission_unknown_path_requests_total ")?.parse::<u64>().ok()
        });
        ensure!(counted >= Some(16), "{counted:?} requests without the secret were counted");
    }
    // A whole creation later, nothing has happened to the pod.
    fixture.in_service(["after"]).await?;
    let after = fixture.api().get("victim").await.context("read the pod")?;
    ensure!(
        after.uid() == before.uid() && after.metadata.deletion_timestamp.is_none(),
        "the pod was deleted"
    );
    ensure!(
        !after.annotations().contains_key(DELETION_REQUEST),
        "a deletion request was recorded: {after:?}"
    );
    let operations = |labels: &std::collections::BTreeMap<String, String>| {
        labels.keys().filter(|key| key.contains(".podopslifecycle.kusionstack.io/")).count()
    };
    ensure!(operations(after.labels()) == operations(before.labels()), "an operation has begun: {after:?}");
    Ok(())
}
