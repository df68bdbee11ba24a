//! Replays the recorded versions of all pods.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use podward_e2e::Fixture;
use podward_support::timeline::PodHistory;

/// A moment in the order in which versions were stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplayMoment(u64);

/// The changes of pods since a moment.
#[derive(Debug)]
pub(super) struct Replay {
    /// The lowest number of pods that were Ready and not being deleted.
    pub(super) fewest_ready: usize,
    /// The pods that left service or were deleted.
    pub(super) left: BTreeSet<String>,
    /// The pods that are gone or being deleted.
    pub(super) gone: BTreeSet<String>,
    /// The pods in the order in which they left service.
    pub(super) order: Vec<String>,
}

/// Returns the current moment.
pub(super) async fn now(fixture: &Fixture) -> Result<ReplayMoment> {
    fixture.timeline().catch_up().await?;
    let histories = fixture.timeline().histories();
    let versions = histories.iter().flat_map(|history| &history.versions);
    let latest = versions.filter_map(|version| version.resource_version.parse().ok()).max();
    Ok(ReplayMoment(latest.context("nothing was recorded")?))
}

/// Returns the changes since `since` of the pods whose names satisfy `mine`. It fails if one of these pods was ever deleted
/// while it was in service, or while a consumer held it.
pub(super) async fn replay(
    fixture: &Fixture,
    since: ReplayMoment,
    mine: impl Fn(&str) -> bool,
) -> Result<Replay> {
    fixture.timeline().catch_up().await?;
    let histories: Vec<PodHistory> =
        fixture.timeline().histories().into_iter().filter(|history| mine(&history.name)).collect();
    // One watch returns the versions of all pods in the order of their numbers.
    let mut steps = BTreeMap::new();
    for history in &histories {
        for version in &history.versions {
            let number: u64 = version.resource_version.parse().context("a version without a number")?;
            steps.insert(number, (history, version.ready && !version.terminating));
        }
        let held = history.held_when_deleted();
        ensure!(held.is_empty(), "pod {} was deleted while it was held by {held:?}", history.name);
        let ending = history.deletion();
        let ending = ending.or(history.versions.last().filter(|_| history.gone_ms.is_some()));
        // The kubelet sets Ready to False a moment after the gate.
        let served = ending.is_some_and(|ending| ending.ready && ending.gate != Some("False"));
        ensure!(!served, "pod {} was deleted while it was in service", history.name);
    }
    let mut ready = BTreeSet::new();
    let mut order: Vec<String> = Vec::new();
    let mut fewest = None;
    for (number, (history, serves)) in steps {
        if serves {
            ready.insert(history.uid.clone());
        } else if ready.remove(&history.uid) && ReplayMoment(number) > since {
            order.push(history.name.clone());
        }
        if ReplayMoment(number) >= since {
            fewest = Some(fewest.map_or(ready.len(), |fewest: usize| fewest.min(ready.len())));
        }
    }
    let went = |history: &&PodHistory| {
        history.gone_ms.is_some() || history.versions.last().is_some_and(|last| last.terminating)
    };
    Ok(Replay {
        fewest_ready: fewest.unwrap_or(ready.len()),
        left: order.iter().cloned().collect(),
        gone: histories.iter().filter(went).map(|history| history.name.clone()).collect(),
        order,
    })
}
