//! `kubectl podward check`: what to look at before the pods of a workload opt in.

use std::fmt::Write;
use std::process::ExitCode;

use anstyle::Style;
use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::api::core::v1::{PodTemplateSpec, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client};
use podward_diagnosis::opt_in::{Advice, AdviceLevel, OptInFacts, advice};
use podward_diagnosis::safe_text;

use crate::object_target::{ObjectTarget, object_target, usage};
use crate::output::Output;
use crate::terminal::{BAD, DOUBTFUL, LineStyle};
use crate::workload;
use crate::workload_kind::WorkloadKind;

/// Check a workload before its pods opt in
///
/// Looks at its replicas and strategy, grace period, probes, preStop hooks, Services and PodDisruptionBudgets, and at how the
/// containers are started as far as that shows what they do on SIGTERM. Changes nothing.
///
/// Exit code: 0 if there is no problem, also with warnings; 1 if there is one, or the workload cannot be read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward check deploy/web\n  kubectl podward check sts/db -n shop -o json"
)]
pub(crate) struct Check {
    /// deploy/NAME, sts/NAME, ds/NAME, cloneset/NAME
    #[arg(value_name = "WORKLOAD")]
    workload: String,
    /// The name, if the first word is a kind: deploy web
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Its namespace [default: the namespace of the kubeconfig's context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Check {
    /// Returns the kind and the name of the workload.
    ///
    /// # Errors
    /// When it is another object. It is an error of the command line.
    pub(crate) fn target(&self) -> Result<(WorkloadKind, String), clap::Error> {
        match object_target(&self.workload, self.name.as_deref())? {
            ObjectTarget::Workload(kind, name) => Ok((kind, name)),
            ObjectTarget::Pod(_) | ObjectTarget::Node(_) => Err(usage(format!(
                "{} is not a workload: name deploy/NAME, sts/NAME, ds/NAME or cloneset/NAME",
                self.workload
            ))),
        }
    }

    /// The workload is that of [`target`](Self::target).
    pub(crate) async fn run(&self, client: Client, (kind, name): (WorkloadKind, String)) -> Result<ExitCode> {
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let found = advice(&facts(&client, &namespace, kind, &name).await?);
        let style: LineStyle = |_, line| match line {
            line if line.starts_with("  problem ") => BAD,
            line if line.starts_with("  warning ") => DOUBTFUL,
            _ => Style::new(),
        };
        let workload = format!("{} {namespace}/{name}", kind.word());
        self.output.print(&found, || text(&workload, &found), style)?;
        let failed = found.iter().any(|advice| advice.level == AdviceLevel::Problem);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

async fn facts(client: &Client, namespace: &str, kind: WorkloadKind, name: &str) -> Result<OptInFacts> {
    let found = workload::find(client, namespace, kind, name).await?;
    let spec = &found.data["spec"];
    let template: PodTemplateSpec =
        serde_json::from_value(spec["template"].clone()).context("read the template of its pods")?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    let everything = ListParams::default();
    let replicas = spec["replicas"].as_i64().and_then(|replicas| i32::try_from(replicas).ok());
    Ok(OptInFacts {
        template,
        replicas: if kind == WorkloadKind::DaemonSet { None } else { Some(replicas.unwrap_or(1)) },
        recreates: spec["strategy"]["type"] == "Recreate",
        services: services.list(&everything).await.context("list Services")?.items,
        budgets: budgets.list(&everything).await.context("list PodDisruptionBudgets")?.items,
    })
}

fn text(workload: &str, found: &[Advice]) -> String {
    let mut text = format!("{workload}\n");
    for Advice { level, what, next } in found {
        let mark = match level {
            AdviceLevel::Problem => "problem",
            AdviceLevel::Warning => "warning",
            AdviceLevel::Note => "note",
        };
        let _ = writeln!(text, "  {mark:<9} {what}\n  {:<9} -> {next}", "");
    }
    let count = |level| found.iter().filter(|advice| advice.level == level).count();
    let (problems, warnings) = (count(AdviceLevel::Problem), count(AdviceLevel::Warning));
    let _ = writeln!(text, "{problems} problems, {warnings} warnings");
    safe_text(&text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        check: Check,
    }

    #[test]
    fn a_workload_is_named() {
        let target = |line: &str| Line::try_parse_from(line.split(' ')).unwrap().check.target();
        for line in ["check deploy/web", "check deploy web"] {
            assert_eq!(target(line).unwrap(), (WorkloadKind::Deployment, "web".to_owned()));
        }
        for line in ["check web", "check pod/web-0", "check node n1", "check svc/web"] {
            assert_eq!(target(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
