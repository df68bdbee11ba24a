//! The record of all versions, played again.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use podward_e2e::Scene;
use podward_support::timeline::History;

/// A moment in the order in which versions were stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// What has become of pods since a moment.
#[derive(Debug)]
pub(super) struct Replay {
    /// The fewest pods that were Ready, and not being deleted, at any time.
    pub(super) fewest_ready: usize,
    /// Pods that left service or were deleted.
    pub(super) left: BTreeSet<String>,
    /// Pods that are gone, or about to be.
    pub(super) gone: BTreeSet<String>,
    /// Pods in the order in which they left service.
    pub(super) order: Vec<String>,
}

/// The present.
pub(super) async fn now(scene: &Scene) -> Result<Moment> {
    scene.timeline().catch_up().await?;
    let histories = scene.timeline().histories();
    let versions = histories.iter().flat_map(|history| &history.versions);
    let latest = versions.filter_map(|version| version.resource_version.parse().ok()).max();
    Ok(Moment(latest.context("nothing was recorded")?))
}

/// What has become since `since` of the pods whose names are of `mine`.
pub(super) async fn replay(scene: &Scene, since: Moment, mine: impl Fn(&str) -> bool) -> Result<Replay> {
    scene.timeline().catch_up().await?;
    let histories: Vec<History> =
        scene.timeline().histories().into_iter().filter(|history| mine(&history.name)).collect();
    // One watch gives the versions of all pods in the order of their numbers.
    let mut steps = BTreeMap::new();
    for history in &histories {
        for version in &history.versions {
            let number: u64 = version.resource_version.parse().context("a version without a number")?;
            steps.insert(number, (history, version.ready && !version.terminating));
        }
        let ending = history.versions.iter().find(|version| version.terminating);
        let ending = ending.or(history.versions.last().filter(|_| history.gone_ms.is_some()));
        // The kubelet tells that it isn't Ready a moment after the gate.
        let served = ending.is_some_and(|ending| ending.ready && ending.gate != Some("False"));
        ensure!(!served, "pod {} was deleted while it was in service", history.name);
    }
    let mut ready = BTreeSet::new();
    let mut order: Vec<String> = Vec::new();
    let mut fewest = None;
    for (number, (history, serves)) in steps {
        if serves {
            ready.insert(history.uid.clone());
        } else if ready.remove(&history.uid) && Moment(number) > since {
            order.push(history.name.clone());
        }
        if Moment(number) >= since {
            fewest = Some(fewest.map_or(ready.len(), |fewest: usize| fewest.min(ready.len())));
        }
    }
    let went = |history: &&History| {
        history.gone_ms.is_some() || history.versions.last().is_some_and(|last| last.terminating)
    };
    Ok(Replay {
        fewest_ready: fewest.unwrap_or(ready.len()),
        left: order.iter().cloned().collect(),
        gone: histories.iter().filter(went).map(|history| history.name.clone()).collect(),
        order,
    })
}
