//! `kubectl podward why`: why pods do not run, serve or end, since when, and the next step.
//!
//! The data comes only from the API server. The functions of the core and of `podward-diagnosis` evaluate it. Without
//! Podward, and with the rights of a user who may only read, it says what it can.

mod alike;
mod binding_names;
mod bindings;
mod busy;
mod clone_set;
mod held;
mod many;
mod node;
mod pod;
mod report;
mod rules;
mod traffic;
mod webhooks;
mod workload;

use std::process::ExitCode;

use anstyle::Style;
use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;

use crate::clock::now;
use crate::object_target::{ObjectTarget, object_target, one_namespace_or_all};
use crate::output::PodsOutput;
use crate::terminal::{FIRST, LineStyle};

/// Explain why a pod does not run, serve or end: the cause, since when, and the next step
///
/// The first line names the most probable cause, its age and the next command; then comes what it was read from.
/// Covers creation, scheduling, images, configuration, volumes, probes, readiness gates, crashes, lost nodes, deletion,
/// rollouts, disruption budgets, and what Podward waits for: operations, hooks, rules, busy work, registries.
/// Changes nothing, and also works where Podward is not installed.
///
/// Exit code: 0 if the report is complete, whatever it says; 1 if the cluster or the object cannot be read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward why web-0\n  kubectl podward why deploy/web -n shop\n  kubectl podward why -l app=web\n  kubectl podward why node/n1\n  kubectl podward why -A -o json\n  kubectl podward why deploy/web -o name",
    group = clap::ArgGroup::new("what").required(true).multiple(true).args(["object", "selector", "all_namespaces"])
)]
pub(crate) struct Why {
    /// The name of a pod, or deploy/NAME, sts/NAME, rs/NAME, ds/NAME, job/NAME, cloneset/NAME, node/NAME
    #[arg(value_name = "POD", conflicts_with_all = ["selector", "all_namespaces"])]
    object: Option<String>,
    /// The name, if the first word is a kind: deploy web
    #[arg(value_name = "NAME", requires = "object")]
    name: Option<String>,
    /// All pods with these labels that do not run, serve or end
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    /// All pods of the cluster that do not run, serve or end
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// The namespace [default: the namespace of the kubeconfig's context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = PodsOutput::Text)]
    output: PodsOutput,
}

impl Why {
    /// Returns the object that is named.
    ///
    /// # Errors
    /// When its kind is not known, or the arguments do not go together. It is an error of the command line.
    pub(crate) fn target(&self) -> Result<Option<ObjectTarget>, clap::Error> {
        one_namespace_or_all(self.namespace.as_deref(), self.all_namespaces)?;
        self.object.as_deref().map(|object| object_target(object, self.name.as_deref())).transpose()
    }

    /// `target` is that of [`target`](Self::target).
    pub(crate) async fn run(&self, client: Client, target: Option<ObjectTarget>) -> Result<ExitCode> {
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        match (target, &self.selector) {
            (Some(target), _) => match target {
                ObjectTarget::Pod(name) => {
                    let report = pod::report(&client, &namespace, &name).await?;
                    let waiting = (!report.causes.is_empty()).then_some(report.pod.as_str());
                    self.print(&report, || report.text(now()), waiting)
                }
                ObjectTarget::Node(name) => {
                    let report = node::report(&client, &name).await?;
                    self.print(&report, || report.text(Timestamp::now()), report.pods.names())
                }
                ObjectTarget::Workload(kind, name) => {
                    let report = workload::report(&client, &namespace, kind, &name).await?;
                    self.print(&report, || report.text(Timestamp::now()), report.pods.names())
                }
            },
            (None, selector) if self.all_namespaces || selector.is_some() => {
                let of = (!self.all_namespaces).then_some(namespace.as_str());
                let report = many::report(&client, of, selector.as_deref()).await?;
                self.print(&report, || report.text(Timestamp::now()), report.names())
            }
            _ => bail!("name a pod, or give --selector or --all-namespaces"),
        }
    }

    /// Prints the report, or the names of the pods `waiting`.
    fn print<'a, R: Serialize>(
        &self,
        report: &R,
        text: impl FnOnce() -> String,
        waiting: impl IntoIterator<Item = &'a str>,
    ) -> Result<ExitCode> {
        let style: LineStyle = |number, _| if number == 0 { FIRST } else { Style::new() };
        self.output.print(report, text, waiting, style)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        why: Why,
    }

    #[test]
    fn something_has_to_be_named() {
        let parse = |line: &str| Line::try_parse_from(line.split(' '));
        for line in
            ["why web-0 -n shop -o json", "why -A", "why -l app=web", "why -A -l app=web", "why deploy/web"]
        {
            parse(line).unwrap();
        }
        for line in ["why", "why -n shop", "why web-0 -A", "why web-0 -l app=web"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("why -l app=web -n shop").unwrap().why.selector.is_some());
        for line in ["why deploy web", "why pod web-0"] {
            assert!(parse(line).unwrap().why.target().is_ok(), "{line}");
        }
        for line in ["why svc/web", "why svc web", "why web-0 web-1", "why -A -n shop"] {
            assert_eq!(parse(line).unwrap().why.target().unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
