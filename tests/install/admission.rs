//! Requests that pass the webhooks and change nothing.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

use super::site::Site;

/// The interval of the requests.
const PACE: Duration = Duration::from_millis(50);
const TARGET: &str = "admitted";

/// Creates and deletes of an opted-in pod, as dry runs, one after the other.
pub(crate) struct AdmissionLoad {
    stop: watch::Sender<bool>,
    work: JoinHandle<Result<usize>>,
}

impl AdmissionLoad {
    pub(crate) fn start(site: &Site) -> Self {
        let pods: Api<Pod> = Api::namespaced(site.client(), "default");
        let (stop, stopped) = watch::channel(false);
        let image = site.image.clone();
        let work = tokio::spawn(async move {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": TARGET, "labels": {CONTROL_LABEL: CONTROL_VALUE}},
                "spec": {"containers": [{"name": "server", "image": image}]},
            });
            let pod: Pod = serde_json::from_value(pod)?;
            let create = PostParams { dry_run: true, ..PostParams::default() };
            let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
            // An existing pod, so that its delete reaches the webhook.
            let mut there = pod.clone();
            (there.metadata.name, there.metadata.generate_name) = (None, Some(format!("{TARGET}-")));
            let there = pods.create(&PostParams::default(), &there).await;
            let there = there.context("make the pod that dry runs delete")?.name_any();
            let mut count = 0;
            while !*stopped.borrow() {
                let made = pods.create(&create, &pod).await;
                let made = made.with_context(|| format!("create number {count} was refused"))?;
                let gates = made.spec.and_then(|spec| spec.readiness_gates).unwrap_or_default();
                if !gates.iter().any(|gate| gate.condition_type == SERVICE_READY_GATE) {
                    bail!("create number {count} went past the webhook");
                }
                let deleted = pods.delete(&there, &delete).await;
                deleted.map(drop).with_context(|| format!("delete number {count} was refused"))?;
                count += 1;
                tokio::time::sleep(PACE).await;
            }
            // The delete may be held. The pod is then deleted by itself.
            let _ = pods.delete(&there, &DeleteParams::default()).await;
            Ok(count)
        });
        AdmissionLoad { stop, work }
    }

    /// Stops the requests and returns their number.
    ///
    /// # Errors
    /// Fails if a request was rejected, or did not reach the webhooks.
    pub(crate) async fn stop(self) -> Result<usize> {
        self.stop.send_replace(true);
        self.work.await.context("the load panicked")?
    }
}
