//! The replicas that owners want and that do not exist.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use podward_kube_util::CachedPod;

use super::super::context::RuleContext;
use super::super::state::OWNER_RECHECK_DELAY;
use super::owner_replicas::has_replicas;
use super::snapshot::NamespaceSnapshot;

/// Owners that are read, or whose pods are listed, at the same time.
const MAX_CONCURRENT_READS: usize = 8;

/// The replicas that owners want and that do not exist.
pub(super) struct MissingReplicas {
    /// For each rule set. 0 for rule sets without a budget, or without a check request.
    pub(super) by_set: Vec<u32>,
    /// When the number may be another one without an event; `None` if none is missing. The pods that are not opted in are
    /// not watched, nor is every owner, and an owner whose pods have gone is soon forgotten.
    pub(super) recheck_in: Option<Duration>,
    /// The pods that are not opted in.
    pub(super) outside: OutsideCounts,
    /// True if pods were listed.
    pub(super) is_listed: bool,
}

/// The numbers of pods that are not opted in, by the UIDs of their owners.
pub(super) type OutsideCounts = HashMap<String, u32>;

/// Returns how many pods the owners of the pods of each rule set want and do not have. A pod that is being deleted is not
/// one that they have, nor is one that is neither opted in nor Ready. If nobody knows whether the owner of a pod that is being
/// deleted wants another one, the pod is itself missing until it has ended, or should have ended: the node of a pod that stays
/// is lost.
///
/// The pods that are not opted in are listed, which may take seconds. With their numbers, `outside`, they are not.
///
/// # Errors
/// When an owner can't be read, or its pods can't be listed.
pub(super) async fn missing_replicas(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
    outside: Option<OutsideCounts>,
) -> Result<MissingReplicas, String> {
    let OwnersInSets { by_set: owners, alone } = OwnersInSets::of(snapshot, Timestamp::now());
    let all: HashMap<&str, &OwnerReference> =
        owners.iter().flatten().map(|(uid, owner)| (*uid, *owner)).collect();
    context.owners.retain(namespace, |uid| snapshot.counting.contains(uid));
    context.outside_pods.retain(namespace, |uid| snapshot.counting.contains(uid));
    let outside = outside.as_ref();
    let reads = all.into_iter().map(|(uid, owner)| async move {
        let existing = snapshot.existing.get(uid).map_or(&[][..], Vec::as_slice);
        of_owner(context, namespace, owner, existing, outside).await.map(|missing| (uid, missing))
    });
    let reads: Vec<_> = reads.collect();
    let missing: HashMap<&str, MissingOfOwner> =
        stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS).try_collect().await?;
    let of_alone = alone.iter().any(|pods| *pods > 0).then_some(OWNER_RECHECK_DELAY);
    let recheck_in = missing.values().filter_map(|missing| missing.recheck_in).chain(of_alone).min();
    let of_set = |(owners, alone): (&HashMap<&str, &OwnerReference>, u32)| {
        owners.keys().map(|uid| missing[uid].pods).fold(alone, u32::saturating_add)
    };
    let by_set = owners.iter().zip(alone).map(of_set).collect();
    let is_listed = missing.values().any(|missing| missing.is_listed);
    let outside =
        missing.iter().filter_map(|(uid, missing)| Some(((*uid).to_owned(), missing.outside?))).collect();
    Ok(MissingReplicas { by_set, recheck_in, outside, is_listed })
}

/// The pods that an owner wants and does not have.
#[derive(Default)]
struct MissingOfOwner {
    pods: u32,
    /// `None` if there are none.
    recheck_in: Option<Duration>,
    /// The pods that are not opted in; `None` if the others are enough.
    outside: Option<u32>,
    is_listed: bool,
}

/// Returns the pods that `owner`, which has the pods `existing` that are opted in, wants and does not have.
async fn of_owner(
    context: &RuleContext,
    namespace: &str,
    owner: &OwnerReference,
    existing: &[Arc<CachedPod>],
    outside: Option<&OutsideCounts>,
) -> Result<MissingOfOwner, String> {
    let wanted = context.owners.wanted(namespace, owner).await?;
    let pods = wanted.count.saturating_sub(u32::try_from(existing.len()).unwrap_or(u32::MAX));
    if pods == 0 {
        return Ok(MissingOfOwner::default());
    }
    let (count, is_listed) = match outside {
        Some(outside) => (outside.get(&owner.uid).copied(), false),
        None => {
            let selector = wanted.selector.as_deref();
            let found = context.outside_pods.ready(namespace, owner, selector, existing, pods).await?;
            (Some(found.pods), found.is_listed)
        }
    };
    let pods = pods.saturating_sub(count.unwrap_or_default());
    // One that was not listed with the others is listed for the next decision.
    let delay = count.map_or(Duration::ZERO, |_| OWNER_RECHECK_DELAY);
    Ok(MissingOfOwner { pods, recheck_in: (pods > 0).then_some(delay), outside: count, is_listed })
}

/// The owners whose missing pods count, for each rule set. None for rule sets without a budget, or without a check
/// request.
struct OwnersInSets<'a> {
    /// By UID.
    by_set: Vec<HashMap<&'a str, &'a OwnerReference>>,
    /// For each rule set: the number of pods that are being deleted, have not ended, and have no owner that counts.
    alone: Vec<u32>,
}

impl<'a> OwnersInSets<'a> {
    fn of(snapshot: &'a NamespaceSnapshot, now: Timestamp) -> Self {
        let with_requests =
            snapshot.pods.iter().zip(&snapshot.sets).filter(|(observed, _)| !observed.requests.is_empty());
        let requested: HashSet<usize> = with_requests.flat_map(|(_, sets)| sets.iter().copied()).collect();
        let counts = |set: usize| snapshot.records[set].set.has_budget() && requested.contains(&set);
        let counted: Vec<bool> = (0..snapshot.records.len()).map(counts).collect();
        let mut found =
            OwnersInSets { by_set: vec![HashMap::new(); counted.len()], alone: vec![0; counted.len()] };
        let active = snapshot.pods.iter().map(|observed| &observed.pod).zip(&snapshot.sets);
        let terminating = snapshot.terminating.iter().map(|(pod, sets)| (pod, sets));
        for (pod, sets) in active.chain(terminating) {
            let owner = pod.controller().filter(|owner| has_replicas(owner));
            for set in sets.iter().filter(|set| counted[**set]) {
                match owner {
                    Some(owner) => drop(found.by_set[*set].insert(&owner.uid, owner)),
                    None => found.alone[*set] += u32::from(is_ending(pod, now)),
                }
            }
        }
        for (owner, sets) in &snapshot.gone_owners {
            for set in sets.iter().filter(|set| counted[**set]) {
                found.by_set[*set].entry(&owner.uid).or_insert(owner);
            }
        }
        found
    }
}

/// Returns whether the pod is being deleted, and its containers may still run.
fn is_ending(pod: &CachedPod, now: Timestamp) -> bool {
    let late = SignedDuration::try_from(OWNER_RECHECK_DELAY).unwrap_or_default();
    !pod.is_terminal() && pod.grace_ends().is_some_and(|ends| now.duration_since(ends) < late)
}
