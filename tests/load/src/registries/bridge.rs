//! The service-discovery-bridge, seen from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use podward_support::{Podward, PodwardService, ServiceKind, within};

use super::names::{BINDING, DEADLINE, NAMESPACE};
use crate::usage::Usage;

/// The interval of reads of the metrics.
const POLL: Duration = Duration::from_millis(20);

/// The bridge.
pub(super) struct Bridge<'a> {
    podward: &'a Podward,
    service: Arc<PodwardService>,
}

/// The metrics at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct BridgeNumbers {
    pub(super) at: Instant,
    /// Instances of the binding that the registry shows as wanted.
    pub(super) present: f64,
    /// Changes that the registry shows.
    pub(super) shown: f64,
    /// Changes that failed.
    pub(super) failed: f64,
    /// Heartbeats.
    pub(super) renewals: f64,
    /// Heartbeats that failed.
    pub(super) failed_renewals: f64,
    pub(super) comparisons: f64,
    /// The sum of their times.
    pub(super) comparison_seconds: f64,
}

impl<'a> Bridge<'a> {
    pub(super) fn of(podward: &'a Podward) -> Result<Self> {
        let service = podward.services(ServiceKind::ServiceDiscoveryBridge).into_iter().next();
        Ok(Self { podward, service: service.context("no service-discovery-bridge is running")? })
    }

    /// Starts it again, so that its memory has no history.
    pub(super) async fn restart(&self) -> Result<()> {
        self.service.stop().await?;
        self.service.start().await
    }

    /// Returns its process.
    pub(super) fn usage(&self) -> Result<Usage> {
        Usage::of(self.podward, ServiceKind::ServiceDiscoveryBridge)
    }

    /// Reads its metrics.
    pub(super) async fn numbers(&self) -> Result<BridgeNumbers> {
        let text = self.service.metrics().await?;
        let value = |series: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            lines.next().and_then(|number| number.parse::<f64>().ok()).unwrap_or_default()
        };
        let labels = format!(r#"{{binding="{NAMESPACE}/{BINDING}",state="present"}}"#);
        Ok(BridgeNumbers {
            at: Instant::now(),
            present: value(&format!("podward_discovery_instances{labels}")),
            shown: value(r#"podward_discovery_changes_total{result="shown"}"#),
            failed: value(r#"podward_discovery_changes_total{result="failed"}"#),
            renewals: value(r#"podward_discovery_renewals_total{result="sent"}"#),
            failed_renewals: value(r#"podward_discovery_renewals_total{result="failed"}"#),
            comparisons: value("podward_discovery_comparison_seconds_count"),
            comparison_seconds: value("podward_discovery_comparison_seconds_sum"),
        })
    }

    /// Reads its metrics until they fit.
    pub(super) async fn until(
        &self,
        what: &str,
        test: impl Fn(&BridgeNumbers) -> bool,
    ) -> Result<BridgeNumbers> {
        let read = async {
            loop {
                let numbers = self.numbers().await?;
                if test(&numbers) {
                    return Ok(numbers);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let waited = within(DEADLINE, || what.to_owned(), read).await;
        waited.with_context(|| self.service.diagnostics())
    }

    /// Waits until the registry shows `count` instances.
    pub(super) async fn until_present(&self, count: usize) -> Result<BridgeNumbers> {
        self.until(&format!("{count} instances"), |numbers| numbers.present >= count as f64).await
    }
}
