//! `kubectl podward runbook`: what to do about an alert. The pages are those of this version, so no network is needed.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

/// The pages of `docs/runbooks`.
const PAGES: [(&str, &str); 35] = [
    ("PodwardBindingRejected", include_str!("../../../../docs/runbooks/PodwardBindingRejected.md")),
    ("PodwardBridgeWithoutLease", include_str!("../../../../docs/runbooks/PodwardBridgeWithoutLease.md")),
    ("PodwardBusyOverrun", include_str!("../../../../docs/runbooks/PodwardBusyOverrun.md")),
    ("PodwardCertificateExpiring", include_str!("../../../../docs/runbooks/PodwardCertificateExpiring.md")),
    (
        "PodwardCertificateNotReloaded",
        include_str!("../../../../docs/runbooks/PodwardCertificateNotReloaded.md"),
    ),
    (
        "PodwardCloneSetHookPastDeadline",
        include_str!("../../../../docs/runbooks/PodwardCloneSetHookPastDeadline.md"),
    ),
    (
        "PodwardCloneSetLeaderMissing",
        include_str!("../../../../docs/runbooks/PodwardCloneSetLeaderMissing.md"),
    ),
    (
        "PodwardCloneSetReconcileErrors",
        include_str!("../../../../docs/runbooks/PodwardCloneSetReconcileErrors.md"),
    ),
    ("PodwardConnectionFlood", include_str!("../../../../docs/runbooks/PodwardConnectionFlood.md")),
    ("PodwardDeletedBeforeDrained", include_str!("../../../../docs/runbooks/PodwardDeletedBeforeDrained.md")),
    (
        "PodwardDeletionRequestsNotRecorded",
        include_str!("../../../../docs/runbooks/PodwardDeletionRequestsNotRecorded.md"),
    ),
    ("PodwardHookFailing", include_str!("../../../../docs/runbooks/PodwardHookFailing.md")),
    ("PodwardHookInvalid", include_str!("../../../../docs/runbooks/PodwardHookInvalid.md")),
    ("PodwardHookOverdue", include_str!("../../../../docs/runbooks/PodwardHookOverdue.md")),
    ("PodwardHookPastDeadline", include_str!("../../../../docs/runbooks/PodwardHookPastDeadline.md")),
    ("PodwardHookUnreachable", include_str!("../../../../docs/runbooks/PodwardHookUnreachable.md")),
    ("PodwardLeaderMissing", include_str!("../../../../docs/runbooks/PodwardLeaderMissing.md")),
    ("PodwardOperationHeldTooLong", include_str!("../../../../docs/runbooks/PodwardOperationHeldTooLong.md")),
    ("PodwardPodsWaitForRule", include_str!("../../../../docs/runbooks/PodwardPodsWaitForRule.md")),
    (
        "PodwardProceededPastDeadline",
        include_str!("../../../../docs/runbooks/PodwardProceededPastDeadline.md"),
    ),
    ("PodwardReconcileErrors", include_str!("../../../../docs/runbooks/PodwardReconcileErrors.md")),
    ("PodwardRegistryDiffers", include_str!("../../../../docs/runbooks/PodwardRegistryDiffers.md")),
    ("PodwardRegistryRemovalsHeld", include_str!("../../../../docs/runbooks/PodwardRegistryRemovalsHeld.md")),
    ("PodwardRegistryUnreachable", include_str!("../../../../docs/runbooks/PodwardRegistryUnreachable.md")),
    (
        "PodwardRequestBytesExhausted",
        include_str!("../../../../docs/runbooks/PodwardRequestBytesExhausted.md"),
    ),
    ("PodwardReviewsWithoutSecret", include_str!("../../../../docs/runbooks/PodwardReviewsWithoutSecret.md")),
    ("PodwardRuleWebhookFailing", include_str!("../../../../docs/runbooks/PodwardRuleWebhookFailing.md")),
    ("PodwardServiceNotReady", include_str!("../../../../docs/runbooks/PodwardServiceNotReady.md")),
    (
        "PodwardTrafficControllerNotRegistered",
        include_str!("../../../../docs/runbooks/PodwardTrafficControllerNotRegistered.md"),
    ),
    ("PodwardWatchFailing", include_str!("../../../../docs/runbooks/PodwardWatchFailing.md")),
    ("PodwardWebhookCallsFail", include_str!("../../../../docs/runbooks/PodwardWebhookCallsFail.md")),
    (
        "PodwardWebhookInvalidRequests",
        include_str!("../../../../docs/runbooks/PodwardWebhookInvalidRequests.md"),
    ),
    ("PodwardWebhookMissing", include_str!("../../../../docs/runbooks/PodwardWebhookMissing.md")),
    ("PodwardWebhookOverloaded", include_str!("../../../../docs/runbooks/PodwardWebhookOverloaded.md")),
    ("PodwardWebhookSlow", include_str!("../../../../docs/runbooks/PodwardWebhookSlow.md")),
];

/// Print what to do about an alert of Podward
///
/// Needs no cluster. Without a name, lists the alerts.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kubectl podward runbook PodwardLeaderMissing")]
pub(crate) struct Runbook {
    /// The name of the alert
    #[arg(value_name = "ALERT")]
    alert: Option<String>,
}

impl Runbook {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match &self.alert {
            Some(alert) => print!("{}", page(alert)?),
            None => PAGES.iter().for_each(|(name, _)| println!("{name}")),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the page of an alert, whose name is not case-sensitive.
fn page(alert: &str) -> Result<&'static str> {
    let found = PAGES.iter().find(|(name, _)| name.eq_ignore_ascii_case(alert));
    let (_, text) = found.with_context(|| {
        format!("there is no runbook for {alert}: kubectl podward runbook lists those of this version")
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn every_page_is_printed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks");
        let files =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<String> = files
            .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
            .filter(|name| name != "README")
            .collect();
        let pages: BTreeSet<String> = PAGES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(pages, files);
        assert!(page("podwardleadermissing").unwrap().starts_with("# PodwardLeaderMissing\n"));
        assert!(page("Another").unwrap_err().to_string().contains("lists those of this version"));
    }
}
