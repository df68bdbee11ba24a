//! The replicas that owners want and that do not exist.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::context::RuleContext;
use super::snapshot::NamespaceSnapshot;

/// The replicas that owners want and that do not exist.
pub(super) struct MissingReplicas {
    /// For each rule set. 0 for rule sets without a budget, or without a check request.
    pub(super) by_set: Vec<u32>,
    /// True if some of them belong to an owner that is not watched, so that a change of the owner is not noticed.
    pub(super) are_unwatched: bool,
}

/// Returns how many pods the owners of the pods of each rule set want and do not have.
///
/// # Errors
/// When an owner can't be read.
pub(super) async fn missing_replicas(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
) -> Result<MissingReplicas, String> {
    let with_requests =
        snapshot.pods.iter().zip(&snapshot.sets).filter(|(observed, _)| !observed.requests.is_empty());
    let requested: HashSet<usize> = with_requests.flat_map(|(_, sets)| sets.iter().copied()).collect();
    let mut owners: Vec<HashMap<&str, &OwnerReference>> = vec![HashMap::new(); snapshot.records.len()];
    let counted: Vec<bool> = snapshot
        .records
        .iter()
        .enumerate()
        .map(|(place, record)| record.set.has_budget() && requested.contains(&place))
        .collect();
    for (observed, sets) in snapshot.pods.iter().zip(&snapshot.sets) {
        let Some(owner) = observed.pod.controller() else { continue };
        for set in sets.iter().filter(|set| counted[**set]) {
            owners[*set].insert(owner.uid.as_str(), owner);
        }
    }
    let all: HashMap<&str, &OwnerReference> =
        owners.iter().flatten().map(|(uid, owner)| (*uid, *owner)).collect();
    context.owners.retain(namespace, |uid| snapshot.counting.contains(uid));
    let (mut missing, mut are_unwatched) = (HashMap::new(), false);
    for (uid, owner) in all {
        let wanted = context.owners.wanted(namespace, owner).await?;
        let of_owner = wanted.count.saturating_sub(snapshot.existing.get(uid).copied().unwrap_or_default());
        are_unwatched |= wanted.is_unwatched && of_owner > 0;
        missing.insert(uid, of_owner);
    }
    let of_set = |owners: &HashMap<&str, &OwnerReference>| owners.keys().map(|uid| missing[uid]).sum();
    Ok(MissingReplicas { by_set: owners.iter().map(of_set).collect(), are_unwatched })
}
