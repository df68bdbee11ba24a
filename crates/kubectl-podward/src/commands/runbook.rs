//! `kubectl podward runbook`: what to do about an alert. The pages are those of this version, so no network is needed.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

/// Returns the pages of `docs/runbooks` with these names.
macro_rules! pages {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../../docs/runbooks/", $name, ".md")))),+]
    };
}

/// The pages of `docs/runbooks`.
const PAGES: [(&str, &str); 35] = pages![
    "PodwardBindingRejected",
    "PodwardBridgeWithoutLease",
    "PodwardBusyOverrun",
    "PodwardCertificateExpiring",
    "PodwardCertificateNotReloaded",
    "PodwardCloneSetHookPastDeadline",
    "PodwardCloneSetLeaderMissing",
    "PodwardCloneSetReconcileErrors",
    "PodwardConnectionFlood",
    "PodwardDeletedBeforeDrained",
    "PodwardDeletionRequestsNotRecorded",
    "PodwardHookFailing",
    "PodwardHookInvalid",
    "PodwardHookOverdue",
    "PodwardHookPastDeadline",
    "PodwardHookUnreachable",
    "PodwardLeaderMissing",
    "PodwardOperationHeldTooLong",
    "PodwardPodsWaitForRule",
    "PodwardProceededPastDeadline",
    "PodwardReconcileErrors",
    "PodwardRegistryDiffers",
    "PodwardRegistryRemovalsHeld",
    "PodwardRegistryUnreachable",
    "PodwardRequestBytesExhausted",
    "PodwardReviewsWithoutSecret",
    "PodwardRuleWebhookFailing",
    "PodwardServiceNotReady",
    "PodwardTrafficControllerNotRegistered",
    "PodwardWatchFailing",
    "PodwardWebhookCallsFail",
    "PodwardWebhookInvalidRequests",
    "PodwardWebhookMissing",
    "PodwardWebhookOverloaded",
    "PodwardWebhookSlow",
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
