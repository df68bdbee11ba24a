//! `kubectl podward doctor`: is this installation all right, and if not, what is to be done.
//!
//! A check has two parts: one that collects facts, and one that judges them and can be tested without a cluster. Checks run side by
//! side, each with a deadline, and one that can't be done is a finding like any other: it never hides what the others found.

mod certificates;
mod definitions;
mod finding;
mod hooks;
mod manifests;
mod neighbours;
mod permissions;
mod probes;
mod report;
mod services;
mod site;
mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::Client;
use tokio::time::timeout;

use finding::Finding;
use report::{Check, Report};
use site::Site;

/// Check an installation of Podward
///
/// Nothing is changed: pods that are made to ask the webhooks are dry runs. Ends with 1 when something failed.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Namespace that Podward is in; where its webhooks lead to when not given
    #[arg(long, short, env = "PODWARD_NAMESPACE")]
    namespace: Option<String>,
    /// Namespace in which dry runs create pods: any that Podward doesn't leave alone
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    probe_namespace: String,
    /// How findings are printed
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Seconds that a check may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    deadline: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For machines
    Json,
}

type Findings<'a> = BoxFuture<'a, Result<Vec<Finding>>>;

impl Doctor {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let deadline = Duration::from_secs(self.deadline);
        let site = Site::find(client, self.namespace, self.probe_namespace, deadline).await?;
        let checks: [(&'static str, Findings<'_>); 7] = [
            ("resource definitions", definitions::check(&site).boxed()),
            ("services", services::check(&site).boxed()),
            ("webhook configurations", webhooks::check(&site).boxed()),
            ("webhooks asked", probes::check(&site).boxed()),
            ("certificates", certificates::check(&site).boxed()),
            ("permissions", permissions::check(&site).boxed()),
            ("other installations", neighbours::check(&site).boxed()),
        ];
        let checks = join_all(checks.map(|(name, check)| examine(name, check, deadline))).await;
        let report = Report::new(site.namespace, checks);
        match self.output {
            Output::Table => print!("{}", report.table()),
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        }
        Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

async fn examine(name: &'static str, check: Findings<'_>, deadline: Duration) -> Check {
    let findings = match timeout(deadline, check).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::undone(&error)],
        Err(_) => vec![Finding::failed(
            format!("could not be checked within {} s", deadline.as_secs()),
            "see whether the API server answers (kubectl get --raw /readyz), or give it more time (--deadline)",
        )],
    };
    Check { name, findings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_check_that_cannot_be_done_is_a_finding() {
        let never = examine("never", futures::future::pending().boxed(), Duration::ZERO).await;
        assert!(never.findings[0].what.contains("within 0 s"), "{never:?}");
        let error = anyhow::anyhow!("no route").context("read the Lease");
        let broken = examine("broken", async { Err(error) }.boxed(), Duration::from_secs(5)).await;
        assert_eq!(broken.findings[0].what, "could not be checked: read the Lease: no route");
        assert!(Report::new("x".to_owned(), vec![never]).failed());
        assert!(Report::new("x".to_owned(), vec![broken]).failed());
    }
}
