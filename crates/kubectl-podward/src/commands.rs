//! The commands. Each has a file of its own.

mod begin;
mod break_glass;
mod busy;
mod cancel;
mod check;
mod completion;
mod doctor;
mod finish;
mod get;
mod release;
mod runbook;
mod support_bundle;
mod trace;
mod wait;
mod why;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, Subcommand};

use crate::kubectl_args::KubectlArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    Begin(begin::Begin),
    BreakGlass(break_glass::BreakGlass),
    Busy(busy::Busy),
    Cancel(cancel::Cancel),
    Check(check::Check),
    Complete(completion::Complete),
    Completion(completion::Completion),
    Doctor(doctor::Doctor),
    Finish(finish::Finish),
    Get(get::Get),
    Release(release::Release),
    Runbook(runbook::Runbook),
    SupportBundle(support_bundle::SupportBundle),
    Trace(trace::Trace),
    Wait(wait::Wait),
    Why(why::Why),
}

impl PluginCommand {
    /// `line` is the whole command line, and `kubectl` the cluster, which not every command needs.
    pub(crate) async fn run(self, line: Command, kubectl: &KubectlArgs) -> Result<ExitCode> {
        match self {
            Self::Begin(begin) => begin.run(kubectl.client().await?).await,
            Self::BreakGlass(break_glass) => break_glass.run(kubectl.client().await?).await,
            Self::Busy(busy) => busy.run(kubectl.client().await?).await,
            Self::Cancel(cancel) => cancel.run(kubectl.client().await?).await,
            Self::Check(check) => {
                let target = check.target()?;
                check.run(kubectl.client().await?, target).await
            }
            Self::Complete(complete) => complete.run(line).await,
            Self::Completion(completion) => completion.run(line),
            Self::Doctor(doctor) => doctor.run(kubectl.client().await?).await,
            Self::Finish(finish) => finish.run(kubectl.client().await?).await,
            Self::Get(get) => {
                get.check()?;
                get.run(kubectl.client().await?).await
            }
            Self::Release(release) => {
                release.check()?;
                release.run(kubectl.client().await?).await
            }
            Self::Runbook(runbook) => runbook.run(),
            Self::SupportBundle(bundle) => bundle.run(kubectl.client().await?).await,
            Self::Trace(trace) => {
                let target = trace.target()?;
                trace.run(kubectl.client().await?, target).await
            }
            Self::Wait(wait) => wait.run(kubectl.client().await?).await,
            Self::Why(why) => {
                let target = why.target()?;
                why.run(kubectl.client().await?, target).await
            }
        }
    }
}
