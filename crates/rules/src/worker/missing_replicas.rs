//! The replicas that owners want and that do not exist.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use podward_kube_util::CachedPod;

use super::super::context::RuleContext;
use super::super::state::OWNER_RECHECK_DELAY;
use super::owner_replicas::has_replicas;
use super::snapshot::NamespaceSnapshot;

/// The replicas that owners want and that do not exist.
pub(super) struct MissingReplicas {
    /// For each rule set. 0 for rule sets without a budget, or without a check request.
    pub(super) by_set: Vec<u32>,
    /// True if the number may change without an event: some belong to an owner that is not watched, or to one whose pods
    /// have gone and that is soon forgotten, or to none.
    pub(super) expires: bool,
}

/// Returns how many pods the owners of the pods of each rule set want and do not have. A pod that is being deleted is not
/// one that they have. If nobody knows whether its owner wants another one, it is itself missing until it has ended, or should
/// have ended: the node of a pod that stays is lost.
///
/// # Errors
/// When an owner can't be read.
pub(super) async fn missing_replicas(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
) -> Result<MissingReplicas, String> {
    let OwnersInSets { by_set: owners, gone, alone } = OwnersInSets::of(snapshot, Timestamp::now());
    let all: HashMap<&str, &OwnerReference> =
        owners.iter().flatten().map(|(uid, owner)| (*uid, *owner)).collect();
    context.owners.retain(namespace, |uid| snapshot.counting.contains(uid));
    let (mut missing, mut expires) = (HashMap::new(), alone.iter().any(|pods| *pods > 0));
    for (uid, owner) in all {
        let wanted = context.owners.wanted(namespace, owner).await?;
        let of_owner = wanted.count.saturating_sub(snapshot.existing.get(uid).copied().unwrap_or_default());
        expires |= of_owner > 0 && (wanted.is_unwatched || gone.contains(uid));
        missing.insert(uid, of_owner);
    }
    let of_set = |(owners, alone): (&HashMap<&str, &OwnerReference>, u32)| {
        owners.keys().map(|uid| missing[uid]).fold(alone, u32::saturating_add)
    };
    let by_set = owners.iter().zip(alone).map(of_set).collect();
    Ok(MissingReplicas { by_set, expires })
}

/// The owners whose missing pods count, for each rule set. None for rule sets without a budget, or without a check
/// request.
struct OwnersInSets<'a> {
    /// By UID.
    by_set: Vec<HashMap<&'a str, &'a OwnerReference>>,
    /// The UIDs of owners that count in a rule set only because a pod of theirs has just gone.
    gone: HashSet<&'a str>,
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
        let mut found = OwnersInSets {
            by_set: vec![HashMap::new(); counted.len()],
            gone: HashSet::new(),
            alone: vec![0; counted.len()],
        };
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
                found.by_set[*set].entry(&owner.uid).or_insert_with(|| {
                    found.gone.insert(&owner.uid);
                    owner
                });
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
