//! Counts the unavailable pods over time, from the record of all versions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use podward_core::keys;
use podward_e2e::Fixture;

/// The outages since all pods were available for the first time.
#[derive(Debug)]
pub(super) struct WebhookOutages {
    /// The highest number of unavailable pods.
    pub(super) most: usize,
    /// The names of pods in the order in which they left service.
    pub(super) order: Vec<String>,
}

/// Returns the outages of the pods whose names satisfy `mine`. Versions are ordered by the time they were stored,
/// across pods.
pub(super) async fn outages(fixture: &Fixture, mine: impl Fn(&str) -> bool) -> Result<WebhookOutages> {
    fixture.timeline().catch_up().await?;
    let histories: Vec<_> =
        fixture.timeline().histories().into_iter().filter(|history| mine(&history.name)).collect();
    let mut steps = BTreeMap::new();
    for history in &histories {
        for version in &history.versions {
            let number: u64 = version.resource_version.parse().context("a version without a number")?;
            let serves = version.labels.contains_key(keys::SERVICE_AVAILABLE) && !version.terminating;
            steps.insert(number, (history, serves));
        }
    }
    let (mut serving, mut since, mut most, mut order) = (BTreeSet::new(), None, 0, Vec::new());
    for (number, (history, serves)) in steps {
        if serves {
            serving.insert(&history.uid);
        } else if serving.remove(&history.uid) && since.is_some() {
            order.push(history.name.clone());
        }
        let out = histories.len() - serving.len();
        if since.is_none() && out == 0 {
            since = Some(number);
        }
        if since.is_some() {
            most = most.max(out);
        }
    }
    ensure!(since.is_some(), "the pods were never all in service");
    Ok(WebhookOutages { most, order })
}
