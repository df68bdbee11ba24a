//! `cargo xtask bench`: the figures of `docs/benchmarks.md`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use podward_testbed::{Part, Programs, Shape, build_workspace};
use serde_json::{Map, Value};

use crate::{console, prepare};

/// Optimised, for what is measured and for what measures: a slow load generator would be measured instead.
const PROFILE: &str = "bench-lite";

/// Measure what Podward costs.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure; everything if nothing is named
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Write the reports of all but engine to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Pods under the rule, for the benchmark rules [default: 5000]
    #[arg(long, value_name = "NUMBER")]
    pods: Option<usize>,
    /// How many of them ask at once, at most a quarter [default: a tenth]
    #[arg(long, value_name = "NUMBER", requires = "pods")]
    asking: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The engine alone: its step for one pod, and what it makes of rules over many
    #[value(alias = "advance")]
    Engine,
    /// The mutating webhook alone: CPU, requests per second, latency, memory
    Webhook,
    /// The validating webhook alone, asked about deletes: the same
    Deletes,
    /// Operations on a simulated cluster: time, writes, memory
    Operations,
    /// Deletes and evictions on a simulated cluster: time, writes, memory of each service
    Drain,
    /// Rules on a simulated cluster: many pods that ask at once, and pods that no rule selects
    Rules,
    /// What the webhooks add to requests at the API server, on a real node, with 1, 2 and 4 replicas
    Admission,
}

impl Bench {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let names = if self.names.is_empty() { Name::value_variants() } else { &self.names };
        ensure!(
            self.pods.is_none() || names.contains(&Name::Rules),
            "--pods is for the benchmark rules, which isn't asked for"
        );
        let mut reports = Map::new();
        for &name in names {
            println!("== {}", label(name));
            match name {
                Name::Engine => engine().await?,
                Name::Webhook => {
                    let programs = build_workspace(PROFILE).await?;
                    let webhook = programs.path("mutating-webhook")?;
                    reports.insert(label(name), load(&programs, "webhook", &[webhook.into()], None).await?);
                }
                Name::Deletes => {
                    let programs = build_workspace(PROFILE).await?;
                    let webhook = programs.path("validating-webhook")?;
                    reports.insert(label(name), load(&programs, "deletes", &[webhook.into()], None).await?);
                }
                Name::Operations | Name::Drain | Name::Rules | Name::Admission => {
                    let keeper = match name {
                        Name::Admission => prepare::bed(&Part::ALL, true).await?.keeper,
                        _ => prepare::bed(Shape::Simulated.parts(), false).await?.keeper,
                    };
                    let programs = build_workspace(PROFILE).await?;
                    let sizes = match name {
                        Name::Rules => self.pods.into_iter().chain(self.asking).collect(),
                        _ => Vec::new(),
                    };
                    let arguments: Vec<OsString> = sizes.iter().map(|size| size.to_string().into()).collect();
                    let report = load(&programs, &label(name), &arguments, Some(&keeper)).await?;
                    reports.insert(label(name), report);
                }
            }
        }
        if let Some(file) = self.json {
            let text = serde_json::to_string_pretty(&reports)?;
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn label(name: Name) -> String {
    name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

async fn engine() -> Result<()> {
    let mut command = podward_testbed::cargo();
    command.args(["bench", "--profile", PROFILE, "--package", "podward-core"]);
    command.args(["--bench", "advance", "--bench", "rules"]);
    let status = console::run(&mut command, "cargo bench").await?;
    ensure!(status.success(), "cargo bench ended with {status}; its messages are above");
    Ok(())
}

/// Runs the load generator for `what`, which says how it goes on the standard error and prints its report in the end.
async fn load(
    programs: &Programs,
    what: &str,
    arguments: &[OsString],
    keeper: Option<&Path>,
) -> Result<Value> {
    let mut command = tokio::process::Command::new(programs.path("podward-load")?);
    command.arg(what).args(arguments);
    if let Some(keeper) = keeper {
        command.env("PODWARD_TESTBED_BIN", keeper);
    }
    let child = command.stdout(Stdio::piped()).spawn().context("cannot start podward-load")?;
    let output =
        child.wait_with_output().await.with_context(|| format!("cannot run the benchmark {what}"))?;
    ensure!(output.status.success(), "the benchmark {what} ended with {}", output.status);
    let report = String::from_utf8_lossy(&output.stdout);
    println!("{}", report.trim_end());
    serde_json::from_str(&report).with_context(|| format!("the benchmark {what} printed no report"))
}
