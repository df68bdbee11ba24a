//! The replicas that owners want and that do not exist.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use podward_kube_util::CachedPod;

use super::super::context::RuleContext;
use super::super::state::{OWNER_RECHECK_DELAY, ends_workload};
use super::outside_lists::ListedPods;
use super::outside_pods::OwnerToList;
use super::owner_replicas::{UnreadOwner, has_replicas};
use super::snapshot::NamespaceSnapshot;

/// Owners that are read at the same time.
const MAX_CONCURRENT_READS: usize = 8;

/// The replicas that owners want and that do not exist.
pub(super) struct MissingReplicas {
    /// For each rule set. 0 for rule sets without a budget, or without a check request. It does not count for those in
    /// `unknown`.
    pub(super) by_set: Vec<u32>,
    /// The places of the rule sets for which the number is not known: an owner can't be read, and this is the error, or
    /// its pods have to be listed.
    pub(super) unknown: HashMap<usize, Option<String>>,
    /// By the place of a rule set: when the number may be another one without an event. Not for those for which it is
    /// known and none is missing. The pods that are not opted in are not watched, nor is every owner, and an owner
    /// whose pods have gone is soon forgotten.
    pub(super) rechecks: HashMap<usize, Instant>,
    /// The owners whose pods have to be listed for rule sets in `unknown`.
    pub(super) to_list: Vec<OwnerToList>,
}

/// Returns how many pods the owners of the pods of each rule set want and do not have, for a decision at the time
/// `now`. A pod that is being deleted is not one that they have, nor is one that is neither opted in nor Ready. If
/// nobody knows whether the owner of a pod that is being deleted wants another one, the pod is itself missing until it
/// has ended, or should have ended: the node of a pod that stays is lost.
///
/// `listed` are the pods that are not opted in, if they have just been listed. For the rule sets that needed the list,
/// no other is needed now: owners that are not in it have no such pods. Otherwise their pods could be listed again and
/// again without a decision.
pub(super) async fn missing_replicas(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
    listed: Option<&ListedPods>,
    now: Instant,
) -> MissingReplicas {
    let OwnersInSets { by_set: owners, alone } = OwnersInSets::of(snapshot, Timestamp::now());
    let all: HashMap<&str, &OwnerReference> =
        owners.iter().flatten().map(|(uid, owner)| (*uid, *owner)).collect();
    context.owners.retain(namespace, |uid| snapshot.counting.contains(uid));
    context.outside_pods.retain(namespace, |uid| snapshot.counting.contains(uid));
    let reads = all.into_iter().map(|(uid, owner)| async move {
        let existing = snapshot.existing.get(uid).map_or(&[][..], Vec::as_slice);
        (uid, of_owner(context, namespace, owner, existing, listed, now).await)
    });
    let reads: Vec<_> = reads.collect();
    let missing: HashMap<&str, Result<MissingOfOwner, UnreadOwner>> =
        stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS).collect().await;
    let has_list =
        |set: usize| listed.is_some_and(|listed| listed.sets.contains(&snapshot.records[set].set.name));
    let (unknown, rechecks) = (HashMap::new(), HashMap::new());
    let mut found = MissingReplicas { by_set: alone, unknown, rechecks, to_list: Vec::new() };
    for (set, owners) in owners.iter().enumerate() {
        let mut rechecks: Vec<Instant> = Vec::new();
        if found.by_set[set] > 0 {
            rechecks.push(now + OWNER_RECHECK_DELAY);
        }
        for missing in owners.keys().map(|uid| &missing[uid]) {
            match missing {
                Ok(missing) if missing.to_list.is_none() || has_list(set) => {
                    found.by_set[set] = found.by_set[set].saturating_add(missing.pods);
                    rechecks.extend(missing.recheck_at);
                }
                Ok(_) => drop(found.unknown.entry(set).or_default()),
                Err(unread) => {
                    found.unknown.insert(set, Some(unread.error.clone()));
                    rechecks.push(unread.retry_at);
                }
            }
        }
        found.rechecks.extend(rechecks.into_iter().min().map(|at| (set, at)));
    }
    if !found.unknown.is_empty() {
        found.to_list = missing.into_values().filter_map(|missing| missing.ok()?.to_list).collect();
    }
    found
}

/// The pods that an owner wants and does not have.
#[derive(Default)]
struct MissingOfOwner {
    pods: u32,
    /// `None` if there are none.
    recheck_at: Option<Instant>,
    /// What to list: there are fewer missing pods if some are not opted in. `None` if that is known.
    to_list: Option<OwnerToList>,
}

/// Returns the pods that `owner`, which has the pods `existing` that are opted in, wants and does not have. None if one
/// of them has a deletion request that means that the owner ends: a Job creates no pods while its controller deletes all
/// of them, and reports its end only after that.
///
/// # Errors
/// When the owner can't be read.
async fn of_owner(
    context: &RuleContext,
    namespace: &str,
    owner: &OwnerReference,
    existing: &[Arc<CachedPod>],
    listed: Option<&ListedPods>,
    now: Instant,
) -> Result<MissingOfOwner, UnreadOwner> {
    let wanted = context.owners.wanted(namespace, owner).await?;
    let pods = wanted.count.saturating_sub(u32::try_from(existing.len()).unwrap_or(u32::MAX));
    if pods == 0 || existing.iter().any(|pod| ends_workload(pod)) {
        return Ok(MissingOfOwner::default());
    }
    let none_until = context.outside_pods.none_until(&owner.uid);
    let outside = listed.and_then(|listed| listed.outside(&owner.uid, existing));
    if outside.is_none() && none_until.is_none() {
        let known = existing.iter().map(|pod| pod.uid().to_owned()).collect();
        let to_list = OwnerToList { owner: owner.clone(), selector: wanted.selector, known, most: pods };
        return Ok(MissingOfOwner { pods, recheck_at: Some(now), to_list: Some(to_list) });
    }
    let is_old = outside.as_ref().is_some_and(|outside| outside.is_old);
    let pods = pods.saturating_sub(outside.map_or(0, |outside| outside.pods));
    let delayed = none_until.unwrap_or(now + OWNER_RECHECK_DELAY);
    let recheck_at = (pods > 0).then_some(if is_old { now } else { delayed });
    Ok(MissingOfOwner { pods, recheck_at, to_list: None })
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
