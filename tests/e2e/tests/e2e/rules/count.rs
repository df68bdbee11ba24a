//! How many pods were out of service at a time: the record of all versions, played again.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use podward_core::keys;
use podward_e2e::Scene;

/// What was seen since all pods were in service for the first time.
#[derive(Debug)]
pub(super) struct Outages {
    /// The most pods that were out of service at a moment.
    pub(super) most: usize,
    /// Names of pods in the order in which they left service.
    pub(super) order: Vec<String>,
}

/// The outages of the pods whose names are of `mine`. Versions are taken in the order in which they were stored, whatever the pod.
pub(super) async fn outages(scene: &Scene, mine: impl Fn(&str) -> bool) -> Result<Outages> {
    scene.timeline().catch_up().await?;
    let histories: Vec<_> =
        scene.timeline().histories().into_iter().filter(|history| mine(&history.name)).collect();
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
    Ok(Outages { most, order })
}
