//! The jobs of `helm test`, `helm uninstall` and `helm rollback` have the rights that they use, and no others.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use podward_e2e::rights::{AccessRight, RecordedAccess, lines, rendered_rights};

use super::site::Site;

pub(crate) const DOCTOR: &str = "podward-doctor";
pub(crate) const GUARD: &str = "podward-uninstall-guard";
pub(crate) const ROLLBACK_GUARD: &str = "podward-rollback-guard";

/// The rights that are used in ways that the log does not show, or not within a test's time.
const OTHERWISE: [(&str, &str, &str); 3] = [
    // If a Deployment is not scaled down at the first look.
    (GUARD, "watch", "apps/deployments"),
    // To read a pod or a DiscoveryBinding again that another writer has changed meanwhile.
    (GUARD, "get", "pods"),
    (GUARD, "get", "podward.io/discoverybindings"),
];

/// The rights that a job does not get on purpose: the doctor skips what it cannot check without them.
const REFUSED: [(&str, &str, &str); 2] = [
    // Serving certificates are next to private keys.
    (DOCTOR, "get", "secrets"),
    // It allows any request to any Service of the namespace.
    (DOCTOR, "get", "services/proxy"),
];

/// Checks the rights of the job `account`, which has run.
pub(crate) fn are_all_used(site: &Site, account: &str) -> Result<()> {
    let granted_by = rendered_rights()?;
    let granted: BTreeSet<AccessRight> =
        granted_by.keys().filter(|right| right.account == account).cloned().collect();
    ensure!(granted.len() >= 5, "the chart grants {account} only {} rights", granted.len());
    let log = site.audit_log().context("the test cluster has no audit log")?;
    let recorded = RecordedAccess::read(&log)?;
    let otherwise = OTHERWISE.map(|(account, verb, resource)| AccessRight::new(account, verb, "", resource));
    let unused: BTreeSet<AccessRight> = granted
        .into_iter()
        .filter(|right| !recorded.allowed.contains(right) && !otherwise.contains(right))
        .collect();
    ensure!(unused.is_empty(), "allowed, and not used: {}", lines(&unused, &granted_by));
    let refused = REFUSED.map(|(account, verb, resource)| AccessRight::new(account, verb, "", resource));
    let missing: BTreeSet<AccessRight> = recorded
        .forbidden
        .into_iter()
        .filter(|right| right.account == account && !refused.contains(right))
        .collect();
    ensure!(missing.is_empty(), "was forbidden: {}", lines(&missing, &granted_by));
    Ok(())
}
