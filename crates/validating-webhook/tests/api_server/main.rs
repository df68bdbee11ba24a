//! Deletes and evictions at a real API server with the deployed manifests. The lifecycle-controller is down: pods are
//! held without it.
// A helper of a test fails as a test does.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod client_certificate;
mod guarded_cluster;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::Status;
use podward_core::keys::{BREAK_GLASS, CONTROL_LABEL};
use serde_json::{Value, json};

use guarded_cluster::{GuardedCluster, eventually};

const HELD: &str = "held by PodOpsLifecycle";

fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_holds_what_the_webhook_holds() {
    let guarded = GuardedCluster::start("hold").await;
    deletes(&guarded).await;
    evictions(&guarded).await;
    allowed_deletions(&guarded).await;
    namespaces(&guarded).await;
    without_the_webhook(&guarded).await;
    guarded.down().await;
}

async fn deletes(guarded: &GuardedCluster) {
    let pods = guarded.pods("default");
    guarded.create("default", "web-0").await;
    let status = refused(pods.delete("web-0", &DeleteParams::default()).await);
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"), "{status:?}");
    assert!(status.message.contains(HELD), "{status:?}");
    // With Retry-After a client would retry by itself, and the user would not see the message.
    assert!(status.details.is_none_or(|details| details.retry_after_seconds == 0));
    let output = guarded.kubectl(&["delete", "pod", "web-0"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("(TooManyRequests)") && said.contains(HELD), "{said}");
    // A forced delete is held too.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    assert_eq!(refused(pods.delete("web-0", &now).await).code, 429);
    let all = kube::api::ListParams::default();
    assert_eq!(refused(pods.delete_collection(&DeleteParams::default(), &all).await).code, 429);
    assert!(pods.get("web-0").await.unwrap().metadata.deletion_timestamp.is_none());
}

async fn evictions(guarded: &GuardedCluster) {
    guarded.create("default", "web-1").await;
    for version in ["v1", "v1beta1"] {
        let status = refused(guarded.evict("default", "web-1", version).await);
        assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"), "{status:?}");
        assert!(status.message.contains("eviction") || status.message.contains(HELD), "{status:?}");
    }
    // The API server compares the preconditions of what the webhook allows.
    let uid = guarded.pods("default").get("web-1").await.unwrap().metadata.uid.unwrap();
    for (preconditions, code) in [
        (json!({"uid": "00000000-0000-0000-0000-000000000000"}), 409),
        (json!({"resourceVersion": "1"}), 409),
        (json!({"uid": uid}), 429),
        (json!({"uid": "", "resourceVersion": ""}), 429),
    ] {
        let status = refused(guarded.evict_with("default", "web-1", "v1", preconditions.clone()).await);
        assert_eq!(status.code, code, "{preconditions}: {status:?}");
    }
    assert!(guarded.pods("default").get("web-1").await.unwrap().metadata.deletion_timestamp.is_none());
    // kubectl drain retries until its timeout.
    let start = Instant::now();
    let output = guarded.kubectl(&["drain", "n1", "--force", "--ignore-daemonsets", "--timeout=7s"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("will retry after 5s") && said.contains("global timeout reached"), "{said}");
    assert!(start.elapsed() > Duration::from_secs(5) && !output.status.success());
    assert!(guarded.pods("default").get("web-1").await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(guarded.kubectl(&["uncordon", "n1"]).status.success());
    // The API server reports that the pod does not exist.
    assert_eq!(refused(guarded.evict("default", "nobody", "v1").await).code, 404);
}

async fn allowed_deletions(guarded: &GuardedCluster) {
    let pods = guarded.pods("default");
    guarded.create("default", "web-2").await;
    assert!(guarded.kubectl(&["delete", "pod", "web-2", "--dry-run=server"]).status.success());
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    pods.delete("web-2", &dry).await.unwrap();
    assert!(pods.get("web-2").await.unwrap().metadata.deletion_timestamp.is_none());

    let glass = json!({"metadata": {"annotations": {BREAK_GLASS: "INC-7: disk is full"}}});
    pods.patch("web-2", &PatchParams::default(), &Patch::Merge(&glass)).await.unwrap();
    pods.delete("web-2", &DeleteParams::default()).await.unwrap();
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(guarded.client(), "default");
    let broken = async || {
        let all = events.list(&Default::default()).await.unwrap();
        all.items.into_iter().find(|event| event.reason.as_deref() == Some("BreakGlass"))
    };
    let event = eventually("the event", broken, Option::is_some).await.unwrap();
    assert!(event.note.as_deref().unwrap_or_default().contains("INC-7: disk is full"), "{event:?}");

    guarded.create_with("default", "plain", json!({"labels": {}}), json!({})).await;
    pods.delete("plain", &DeleteParams::default()).await.unwrap();
    guarded.create_with("default", "plain-evicted", json!({"labels": {}}), json!({})).await;
    guarded.evict("default", "plain-evicted", "v1").await.unwrap();
    guarded
        .create_with(
            "default",
            "unbound",
            json!({}),
            json!({"nodeName": null, "schedulingGates": [{"name": "a.b/c"}]}),
        )
        .await;
    pods.delete("unbound", &DeleteParams::default()).await.unwrap();
    guarded.create_with("default", "nowhere", json!({}), json!({"nodeName": "n9"})).await;
    pods.delete("nowhere", &DeleteParams::default()).await.unwrap();
}

async fn namespaces(guarded: &GuardedCluster) {
    let spaces: Api<Namespace> = Api::all(guarded.client());
    guarded.namespace("going", json!({})).await;
    guarded.create("going", "web-0").await;
    spaces.delete("going", &DeleteParams::default()).await.unwrap();
    eventually("the namespace goes", async || spaces.get_opt("going").await.unwrap(), Option::is_none).await;
}

/// The behavior of the webhook configuration when the webhook is down.
async fn without_the_webhook(guarded: &GuardedCluster) {
    guarded.namespace("closed", json!({"podward.io/inject": "enabled"})).await;
    for (namespace, name) in [("default", "web-3"), ("closed", "web-3"), ("default", "dying")] {
        guarded.create(namespace, name).await;
    }
    let pods = guarded.pods("default");
    let glass = json!({"metadata": {"annotations": {BREAK_GLASS: "x"}, "finalizers": ["example.com/stays"]}});
    pods.patch("dying", &PatchParams::default(), &Patch::Merge(&glass)).await.unwrap();
    pods.delete("dying", &DeleteParams::default()).await.unwrap();
    guarded.kill_the_webhook().await;
    // Kubelets delete pods with a grace period of 0.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("dying", &now).await.unwrap();
    // An opted-in pod is not deleted, but it can be opted out first.
    assert_eq!(refused(pods.delete("web-3", &DeleteParams::default()).await).code, 500);
    assert_eq!(refused(guarded.evict("closed", "web-3", "v1").await).code, 500);
    let leave = json!({"metadata": {"labels": {CONTROL_LABEL: null}}});
    let closed: Api<Pod> = guarded.pods("closed");
    closed.patch("web-3", &PatchParams::default(), &Patch::Merge(&leave)).await.unwrap();
    closed.delete("web-3", &DeleteParams::default()).await.unwrap();
    // Evictions in namespaces without injection are not blocked.
    let evicted: Value = guarded.evict("default", "web-3", "v1").await.unwrap();
    assert_eq!(evicted["status"], "Success");
}
