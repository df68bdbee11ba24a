//! The load balancer of an example. The test acts as it.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use podward_support::{WAIT, within};
use serde_json::{Value, json};

/// The interval at which the file is read. There is no notification of its changes.
const LOOK: Duration = Duration::from_millis(20);

/// The two files of the example.
#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) backends: PathBuf,
    pub(super) report: PathBuf,
}

impl Balancer {
    /// Reports the generation that the balancer has loaded, and the number of open connections of an address.
    pub(super) fn report(&self, generation: u64, connections: &[(&str, u64)]) -> Result<()> {
        let connections: BTreeMap<&str, u64> = connections.iter().copied().collect();
        let new = self.report.with_extension("new");
        std::fs::write(&new, json!({"generation": generation, "connections": connections}).to_string())
            .and_then(|()| std::fs::rename(&new, &self.report))
            .with_context(|| format!("write {}", self.report.display()))
    }

    /// Waits for this generation and returns the addresses to serve, by UID.
    pub(super) async fn until_generation(&self, generation: u64) -> Result<BTreeMap<String, String>> {
        let what = || format!("generation {generation} of {}", self.backends.display());
        within(WAIT, what, async {
            loop {
                if let Ok(text) = std::fs::read(&self.backends) {
                    let told: Value = serde_json::from_slice(&text).context("understand the backends")?;
                    if told["generation"] == generation {
                        let backends = told["backends"].as_object().context("there are no backends")?;
                        let address =
                            |backend: &Value| backend["address"].as_str().unwrap_or_default().to_owned();
                        return Ok(backends
                            .iter()
                            .map(|(uid, backend)| (uid.clone(), address(backend)))
                            .collect());
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        })
        .await
    }
}
