//! Dry-run requests that show whether the API server calls the webhooks. The API server loads their configurations
//! with a delay.

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use podward_core::keys;
use serde_json::json;
use tokio::time::Instant;

use crate::pods;

const POLL: Duration = Duration::from_millis(50);

/// Sends dry-run requests.
pub(crate) struct WebhookCanary {
    api: Api<Pod>,
}

impl WebhookCanary {
    pub(crate) fn new(client: Client) -> Self {
        Self { api: Api::namespaced(client, "default") }
    }

    /// Waits until the API server calls both webhooks.
    pub(crate) async fn until_called(&self, deadline: Duration) -> Result<()> {
        let end = Instant::now() + deadline;
        loop {
            let seen = match self.mutating().await {
                Ok(()) => self.validating().await,
                not => not,
            };
            let Err(seen) = seen else { return Ok(()) };
            if Instant::now() > end {
                let seconds = deadline.as_secs();
                bail!(
                    "waited {seconds} s in vain until the API server asks Podward's webhooks; last seen: {seen}"
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Checks that a pod that opts in gets the gate.
    async fn mutating(&self) -> Result<(), String> {
        let made = self.create(json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE})).await;
        let pod = made.map_err(|error| error.to_string())?;
        if pods::has_gate(&pod) { Ok(()) } else { Err("a new pod gets no readiness gate".to_owned()) }
    }

    /// Checks that a pod with a malformed label is denied.
    async fn validating(&self) -> Result<(), String> {
        let malformed = "operating.podopslifecycle.kusionstack.io";
        match self.create(json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, malformed: "1"})).await {
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(_) => Err(format!("a pod with the malformed label {malformed} is taken")),
        }
    }

    async fn create(&self, labels: serde_json::Value) -> kube::Result<Pod> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "podward-canary-", "labels": labels},
            "spec": {"containers": [{"name": "none", "image": "podward.local/none:1"}]},
        });
        let pod: Pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
        self.api.create(&PostParams { dry_run: true, ..PostParams::default() }, &pod).await
    }
}
