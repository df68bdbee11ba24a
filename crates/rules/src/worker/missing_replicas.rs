//! The replicas that owners want and that do not exist.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::context::RuleContext;
use super::snapshot::NamespaceSnapshot;

/// Returns for each rule set how many pods its owners want and do not have. 0 for rule sets without a budget, or
/// without a check request.
///
/// # Errors
/// When an owner can't be read.
pub(super) async fn missing_replicas(
    context: &RuleContext,
    namespace: &str,
    snapshot: &NamespaceSnapshot,
) -> Result<Vec<u32>, String> {
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
    context.owners.retain(namespace, |uid| snapshot.existing.contains_key(uid));
    let mut wanted: HashMap<&str, u32> = HashMap::new();
    for (uid, owner) in all {
        wanted.insert(uid, context.owners.wanted(namespace, owner).await?);
    }
    let missing = |uid: &&str| {
        let existing = snapshot.existing.get(*uid).copied().unwrap_or_default();
        wanted.get(uid).copied().unwrap_or_default().saturating_sub(existing)
    };
    Ok(owners.iter().map(|owners| owners.keys().map(missing).sum()).collect())
}
