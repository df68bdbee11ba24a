//! `kubectl podward trace`: the phases of the operations on a pod.

mod traced;
mod watch;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use kube::Client;

use crate::clock::now;
use crate::object_target::{ObjectTarget, object_target, usage};
use crate::operation::{PodClient, PodPlace};
use crate::output::Output;
use crate::workload_kind::WorkloadKind;
use traced::Traced;
use workload::of_workload;

/// Show the operations on a pod or a workload over time: phases, durations, users, evidence, and what it waits for
///
/// Operations that go on, and the latest ones that are over, from the labels of the pod and its annotation
/// podward.io/history. For a workload: of all its pods, and of those that Podward has deleted, from their events, which
/// the API server keeps for an hour by default. The latest 20 are shown. Changes nothing.
///
/// Exit code: 0 if the object was read; 1 if it cannot be read, or has no operation with the id of --id.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl podward trace web-0\n  kubectl podward trace web-0 --watch\n  kubectl podward trace deploy/web\n  kubectl podward trace web-0 --id upgrade -o json\n  kubectl podward trace web-0 --svg web-0.svg --html web-0.html"
)]
pub(crate) struct Trace {
    /// The name of a pod, or deploy/NAME, sts/NAME, rs/NAME, ds/NAME, job/NAME, cloneset/NAME
    #[arg(value_name = "POD")]
    object: String,
    /// The name, if the first word is a kind: deploy web
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Its namespace [default: the namespace of the kubeconfig's context]
    #[arg(long, short)]
    namespace: Option<String>,
    /// Only the operation with this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show changes until the pod is gone: drawn again on a terminal, and one line for each new phase otherwise
    #[arg(long, short, conflicts_with_all = ["output", "svg", "html"])]
    watch: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page with the picture and tables to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Trace {
    /// Returns the kind and the name of the object that is named. `None` is the kind of a pod.
    ///
    /// # Errors
    /// When its kind is not known, or cannot be traced. It is an error of the command line.
    pub(crate) fn target(&self) -> Result<(Option<WorkloadKind>, String), clap::Error> {
        match object_target(&self.object, self.name.as_deref())? {
            ObjectTarget::Node(_) => Err(usage("operations are on pods: name a pod or a workload")),
            ObjectTarget::Workload(..) if self.watch => {
                Err(usage("--watch follows one pod: kubectl podward get --watch shows all of them"))
            }
            ObjectTarget::Workload(kind, name) => Ok((Some(kind), name)),
            ObjectTarget::Pod(name) => Ok((None, name)),
        }
    }

    /// `kind` and `name` are those of [`target`](Self::target).
    pub(crate) async fn run(
        &self,
        client: Client,
        (kind, name): (Option<WorkloadKind>, String),
    ) -> Result<ExitCode> {
        let id = self.id.as_deref();
        let traced = match kind {
            Some(kind) => {
                let namespace =
                    self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
                of_workload(client, &namespace, kind, &name, id).await?
            }
            None => {
                let place = PodPlace { pod: name, namespace: self.namespace.clone() };
                let pod = PodClient::new(client, &place);
                if self.watch {
                    return watch::run(&pod, id).await;
                }
                Traced::of_pod(&pod.read().await?, id)
            }
        };
        if let Some(id) = id.filter(|_| traced.operations.is_empty()) {
            eprintln!("{} has no operation {id}, and its history contains none", traced.object);
            return Ok(ExitCode::FAILURE);
        }
        let now = now();
        if let Some(path) = &self.svg {
            write(path, &podward_timeline::svg(&traced.timeline(now)))?;
        }
        if let Some(path) = &self.html {
            write(path, &podward_timeline::html(&traced.timeline(now)))?;
        }
        self.output.print(&traced, || traced.text(now), traced::STYLE)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        trace: Trace,
    }

    #[test]
    fn what_cannot_be_traced_is_an_error_of_the_command_line() {
        for line in ["trace svc/web", "trace node/n1", "trace node n1", "trace deploy/web --watch"] {
            let trace = Line::try_parse_from(line.split(' ')).unwrap().trace;
            assert_eq!(trace.target().unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
