//! `kubectl podward doctor`: checks an installation of Podward.
//!
//! A check has two parts: one collects facts, the other evaluates them and can be tested without a cluster. Checks run
//! concurrently, each with a deadline. A check that cannot be run is a finding too, so it does not hide the findings of
//! other checks.

mod before;
mod bindings;
mod certificates;
mod configurations;
mod definitions;
mod finding;
mod hooks;
mod images;
mod kube_proxies;
mod manifests;
mod network_policies;
mod other_installations;
mod permissions;
mod policy;
mod probes;
mod report;
mod rollback;
mod run;
mod secret_paths;
mod services;
mod target;
mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use anstyle::Style;
use anyhow::Result;
use clap::Args;
use futures::FutureExt;
use futures::future::join_all;
use kube::Client;

use crate::output::Output;
use crate::terminal::{BAD, DOUBTFUL, LineStyle};
pub(super) use bindings::{BRIDGE, BindingFacts, binding_findings};
pub(super) use policy::POLICY_BINDING;
use report::DoctorReport;
use run::{CheckFuture, run_check};
use target::DoctorTarget;
pub(super) use target::{DEFAULT_NAMESPACE, PART_OF};

/// Check an installation of Podward, or with --pre a cluster before it is installed
///
/// Changes nothing: the pods that it creates to test the webhooks are dry runs. Only with --image it creates a pod, and
/// deletes it again.
///
/// With --before-rollback it checks only whether objects would lose something if the resource definitions of this
/// version took the place of those in the cluster. The chart runs it before helm rollback.
///
/// Exit code: 0 if no check fails, also with warnings; 1 otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward doctor\n  kubectl podward doctor --pre --image registry.example.com/podward/kubectl-podward:0.1.0\n  kubectl podward doctor --before-rollback"
)]
pub(crate) struct Doctor {
    /// Podward's namespace [default: the namespace of the Services that its webhooks call]
    #[arg(long, short, env = "PODWARD_NAMESPACE")]
    namespace: Option<String>,
    /// Namespace for pods that are created as dry runs: one that Podward does not exclude
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    probe_namespace: String,
    /// Check the cluster before Podward is installed: version, kube-proxy, other data planes, drain tools
    #[arg(long)]
    pre: bool,
    /// With --pre: check that nodes can pull this image of kubectl-podward, by a pod in --probe-namespace
    #[arg(long, value_name = "IMAGE", requires = "pre")]
    image: Option<String>,
    /// Check whether objects would lose fields or versions with the resource definitions of this version
    #[arg(long, conflicts_with = "pre")]
    before_rollback: bool,
    /// With --before-rollback: check CloneSets, too, whose definition not every installation has
    #[arg(long, requires = "before_rollback")]
    clonesets: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Maximum duration of each check, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    deadline: u64,
}

impl Doctor {
    pub(crate) async fn run(self, client: Client) -> Result<ExitCode> {
        let deadline = Duration::from_secs(self.deadline);
        if self.pre {
            let checks =
                before::checks(&client, self.image.as_deref(), &self.probe_namespace, deadline).await;
            return self.print(&DoctorReport::before(checks));
        }
        if self.before_rollback {
            let namespace = self.namespace.as_deref().unwrap_or(target::DEFAULT_NAMESPACE);
            let checks = rollback::checks(&client, namespace, self.clonesets, deadline).await;
            return self.print(&DoctorReport::before_rollback(checks));
        }
        let target =
            DoctorTarget::find(client, self.namespace.clone(), self.probe_namespace.clone(), deadline)
                .await?;
        let checks: [(&'static str, CheckFuture<'_>); 14] = [
            ("resource definitions", definitions::check(&target).boxed()),
            ("services", services::check(&target).boxed()),
            ("webhook configurations", webhooks::check(&target).boxed()),
            ("policy", policy::check(&target.client).boxed()),
            ("secret paths", secret_paths::check(&target).boxed()),
            ("webhooks called", probes::check(&target).boxed()),
            ("certificates", certificates::check(&target).boxed()),
            ("permissions", permissions::check(&target).boxed()),
            ("images", images::check(&target).boxed()),
            ("kube-proxies", kube_proxies::check(&target).boxed()),
            ("lifecycle hooks", hooks::check(&target).boxed()),
            ("service registries", bindings::check(&target).boxed()),
            ("network policies", network_policies::check(&target).boxed()),
            ("other installations", other_installations::check(&target).boxed()),
        ];
        let checks = join_all(checks.map(|(name, check)| run_check(name, check, deadline))).await;
        self.print(&DoctorReport::new(target.namespace, checks))
    }

    fn print(&self, report: &DoctorReport) -> Result<ExitCode> {
        let style: LineStyle = |_, line| match line.trim_start().chars().next() {
            Some('✗') => BAD,
            Some('!') => DOUBTFUL,
            _ => Style::new(),
        };
        self.output.print(report, || report.table(), style)?;
        Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
