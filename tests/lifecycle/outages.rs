//! Requests of others while a service of Podward does not run or hangs.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use kube::api::{EvictParams, PostParams};
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test, raw_status_patch};
use podward_support::{ServiceKind, pods};
use serde_json::{Value, json};

/// The account of the lifecycle-controller. The webhook for status writes does not extend its writes.
const CONTROLLER: &str = "system:serviceaccount:podward-system:lifecycle-controller";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated_alone(
            "a_kubelet_writes_status_while_no_controller_runs",
            a_kubelet_writes_status_while_no_controller_runs,
        ),
        Test::simulated_alone(
            "a_webhook_that_hangs_blocks_no_eviction_of_other_pods",
            a_webhook_that_hangs_blocks_no_eviction_of_other_pods,
        ),
    ]
}

/// A controller of another version has stored a state that the webhook would advance. NodeRestriction would reject the
/// kubelet's write with these labels.
async fn a_kubelet_writes_status_while_no_controller_runs(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    fixture.create("web").await?;
    let pod = fixture.until_available("web").await?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("no node")?;
    let controllers = fixture.podward()?.services(ServiceKind::LifecycleController);
    for controller in &controllers {
        controller.stop().await?;
    }
    let written = write_without_controller(&fixture, node).await;
    for controller in &controllers {
        controller.start().await?;
    }
    written?;
    let is_granted = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.metadata.labels.iter().flatten().any(|(key, _)| *key == Stage::Operate.key("a"))
    };
    fixture.feed().until("web", "it may be operated on", is_granted).await.map(drop)
}

async fn write_without_controller(fixture: &Fixture, node: &str) -> Result<()> {
    let begun = json!({"metadata": {"labels": {
        Stage::Operating.key("a"): "1", Stage::OperationType.key("a"): "update",
    }}});
    let (client, namespace) = (fixture.client(), fixture.namespace());
    let write = async |user: &str, groups: &[&str], patch: &Value| {
        let answer = raw_status_patch(&client, namespace, "web", (user, groups), patch).await?;
        ensure!(answer.status.is_success(), "{user} cannot write {patch}: {answer:?}");
        Ok(())
    };
    write(CONTROLLER, &[], &begun).await?;
    let stored = fixture.api().get("web").await.context("read the pod")?;
    let labels = stored.metadata.labels.unwrap_or_default();
    ensure!(!labels.contains_key(&Stage::PreCheck.key("a")), "the state is already advanced: {labels:?}");
    let status =
        json!({"status": {"conditions": [{"type": "PodScheduled", "status": "True", "message": "kubelet"}]}});
    let kubelet = format!("system:node:{node}");
    write(&kubelet, &["system:nodes", "system:authenticated"], &status).await
}

/// The webhook sees the evictions of all pods. It fails open for pods in namespaces that do not opt in all pods.
async fn a_webhook_that_hangs_blocks_no_eviction_of_other_pods(fixture: Arc<Fixture>) -> Result<()> {
    let names = ["other-0", "other-1"];
    for name in names {
        let pod = fixture.pod(name, &json!({}), &json!({}))?;
        fixture.api().create(&PostParams::default(), &pod).await.context("make a pod")?;
        fixture.feed().until(name, "it is Ready", pods::is_ready).await?;
    }
    let webhooks = fixture.podward()?.services(ServiceKind::ValidatingWebhook);
    for webhook in &webhooks {
        webhook.freeze().await?;
    }
    let began = Instant::now();
    let mut evicted = Ok(());
    for name in names {
        let outcome = fixture.api().evict(name, &EvictParams::default()).await;
        evicted = evicted.and(outcome.map(drop).with_context(|| format!("evict {name}")));
    }
    let took = began.elapsed();
    for webhook in &webhooks {
        webhook.thaw().await?;
    }
    evicted?;
    println!("{} evictions while the webhook hangs: {took:.1?}", names.len());
    fixture.feed().until_pods("the pods are gone", |pods| pods.is_empty()).await.map(drop)
}
