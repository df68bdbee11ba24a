//! What the API server itself allows: the same writes without Podward.

use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fleet::MAX_CONCURRENT;
use crate::usage::Usage;

/// The number of writes.
const WRITES: u32 = 1000;

/// Writes of a label through `pods/status`, to pods that are not opted in. Podward's own writes are like this, but larger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BareWrites {
    /// Writes each second, 50 at the same time.
    pub per_second: f64,
    /// CPU time of the API server for each write, in milliseconds.
    pub api_server_cpu_ms: f64,
}

impl BareWrites {
    /// Writes in turn to the pods in `namespace` that `selector` selects.
    pub(crate) async fn measure(
        client: &Client,
        namespace: &str,
        selector: &str,
        api_server: &Usage,
    ) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let found = pods.list(&ListParams::default().labels(selector)).await.context("list pods")?;
        let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        anyhow::ensure!(!names.is_empty(), "no pods {selector} to write to");
        let write = async |(name, number): (&String, u32)| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"bare-write": number.to_string()}}}));
            let written = pods.patch_status(name, &PatchParams::default(), &patch).await;
            written.map(drop).with_context(|| format!("write pod {name}"))
        };
        let (begun, cpu) = (Instant::now(), api_server.cpu_ms()?);
        futures::stream::iter(names.iter().cycle().zip(0..WRITES).map(write))
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect::<()>()
            .await?;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), api_server.cpu_ms()? - cpu);
        Ok(Self { per_second: f64::from(WRITES) / seconds, api_server_cpu_ms: cpu / f64::from(WRITES) })
    }
}
