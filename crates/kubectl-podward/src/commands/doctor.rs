//! `kubectl podward doctor`: checks an installation of Podward.
//!
//! A check has two parts: one collects facts, the other evaluates them and can be tested without a cluster. Checks run
//! concurrently, each with a deadline. A check that cannot be run is a finding too, so it does not hide the findings of
//! other checks.

mod bindings;
mod certificates;
mod configurations;
mod definitions;
mod finding;
mod images;
mod kube_proxies;
mod manifests;
mod network_policies;
mod other_installations;
mod permissions;
mod probes;
mod report;
mod secret_paths;
mod services;
mod target;
mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::Client;
use tokio::time::timeout;

pub(super) use bindings::{BindingFacts, binding_findings};
use finding::Finding;
use report::{CheckReport, DoctorReport};
use target::DoctorTarget;

/// Check an installation of Podward
///
/// Changes nothing: the pods that it creates to test the webhooks are dry runs. Exits with 1 if a check fails.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Podward's namespace [default: the namespace of the Services that its webhooks call]
    #[arg(long, short, env = "PODWARD_NAMESPACE")]
    namespace: Option<String>,
    /// Namespace for pods that are created as dry runs: one that Podward does not exclude
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    probe_namespace: String,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = DoctorOutput::Table)]
    output: DoctorOutput,
    /// Maximum duration of each check, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    deadline: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DoctorOutput {
    /// A line for each finding
    Table,
    /// JSON, for programs
    Json,
}

type CheckFuture<'a> = BoxFuture<'a, Result<Vec<Finding>>>;

impl Doctor {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let deadline = Duration::from_secs(self.deadline);
        let target = DoctorTarget::find(client, self.namespace, self.probe_namespace, deadline).await?;
        let checks: [(&'static str, CheckFuture<'_>); 12] = [
            ("resource definitions", definitions::check(&target).boxed()),
            ("services", services::check(&target).boxed()),
            ("webhook configurations", webhooks::check(&target).boxed()),
            ("secret paths", secret_paths::check(&target).boxed()),
            ("webhooks called", probes::check(&target).boxed()),
            ("certificates", certificates::check(&target).boxed()),
            ("permissions", permissions::check(&target).boxed()),
            ("images", images::check(&target).boxed()),
            ("kube-proxies", kube_proxies::check(&target).boxed()),
            ("service registries", bindings::check(&target).boxed()),
            ("network policies", network_policies::check(&target).boxed()),
            ("other installations", other_installations::check(&target).boxed()),
        ];
        let checks = join_all(checks.map(|(name, check)| run_check(name, check, deadline))).await;
        let report = DoctorReport::new(target.namespace, checks);
        match self.output {
            DoctorOutput::Table => print!("{}", report.table()),
            DoctorOutput::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        }
        Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

async fn run_check(name: &'static str, check: CheckFuture<'_>, deadline: Duration) -> CheckReport {
    let findings = match timeout(deadline, check).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::check_failed(&error)],
        Err(_) => vec![Finding::failed(
            format!("the check did not finish within {} s", deadline.as_secs()),
            "check that the API server answers (kubectl get --raw /readyz), or set a longer --deadline",
        )],
    };
    CheckReport { name, findings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_check_that_cannot_be_run_is_a_finding() {
        let never = run_check("never", futures::future::pending().boxed(), Duration::ZERO).await;
        assert!(never.findings[0].what.contains("within 0 s"), "{never:?}");
        let error = anyhow::anyhow!("no route").context("read the Lease");
        let broken = run_check("broken", async { Err(error) }.boxed(), Duration::from_secs(5)).await;
        assert_eq!(broken.findings[0].what, "could not be checked: read the Lease: no route");
        assert!(DoctorReport::new("x".to_owned(), vec![never]).failed());
        assert!(DoctorReport::new("x".to_owned(), vec![broken]).failed());
    }
}
