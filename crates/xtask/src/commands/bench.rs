//! `cargo xtask bench`: the measurements in `docs/operations/benchmarks.md`.

mod compare;
mod figures;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum, value_parser};
use podward_images::{BuiltPrograms, build_workspace};
use podward_testbed::{Part, Shape};
use serde_json::{Map, Value, json};

use crate::{console, prepare};

/// The cargo profile of the services and of the load generator. An unoptimised load generator would be the bottleneck.
const PROFILE: &str = "bench-lite";

/// Run benchmarks.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The benchmarks to run; all if none is named, and with --compare all but engine
    #[arg(value_enum)]
    benchmarks: Vec<Benchmark>,
    /// Also write the reports of all benchmarks except engine to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// For the benchmark rules: number of pods that the rule selects [default: 5000]. For the benchmarks registries and
    /// scale: number of pods [default: 10000]
    #[arg(long, value_name = "NUMBER")]
    pods: Option<usize>,
    /// For the benchmark rules: number of pods that request an operation at the same time, at most a quarter of the
    /// pods [default: a tenth of the pods]
    #[arg(long, value_name = "NUMBER", requires = "pods")]
    asking: Option<usize>,
    /// For the benchmarks drain and restart: new pods that are opted in have no managed fields
    #[arg(long)]
    drop_managed_fields: bool,
    /// For the benchmark registries: a part of it. Repeat the flag for several [default: all]
    #[arg(long, value_name = "PART", value_parser = PARTS)]
    part: Vec<String>,
    /// For the benchmark registries: a registry. Repeat the flag for several [default: all, and Consul for comparison and
    /// loss]
    #[arg(long, value_name = "NAME", value_parser = REGISTRIES)]
    registry: Vec<String>,
    /// Also run the benchmarks as they are in this commit, in turns with those of the work tree, and say what is faster or
    /// slower
    #[arg(long, value_name = "COMMIT")]
    compare: Option<String>,
    /// With --compare: how often each side runs, at least twice, because one run does not tell a change from noise
    #[arg(long, value_name = "NUMBER", default_value_t = 2, requires = "compare", value_parser = value_parser!(u8).range(2..))]
    runs: u8,
}

/// The parts of the benchmark registries, as podward-load knows them.
const PARTS: [&str; 5] = ["comparison", "registrations", "ready", "heartbeats", "loss"];
/// The registries of the benchmark registries, as podward-load knows them.
const REGISTRIES: [&str; 5] = ["consul", "etcd", "eureka", "nacos", "zookeeper"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// The engine without a cluster: one step for one pod, and rules over many pods
    #[value(alias = "advance")]
    Engine,
    /// The mutating webhook without a cluster: CPU time, requests per second, latency, memory
    Webhook,
    /// The validating webhook without a cluster, for deletes: CPU time, requests per second, latency, memory
    Deletes,
    /// The mutating webhook without a cluster, while 5,000 idle and 200 slow clients are connected: latency, memory
    Flood,
    /// Two replicas of the mutating webhook without a cluster, while one of them ends: latency, reviews that fail
    Replicas,
    /// Operations on a simulated cluster: time, writes, memory
    Operations,
    /// Deletes and evictions on a simulated cluster: time, writes, memory of each service
    Drain,
    /// Rolling restarts of Deployments on a simulated cluster: time, writes
    Restart,
    /// Rules on a simulated cluster: many pods that request an operation at once, and pods that no rule selects
    Rules,
    /// The time that the webhooks add to API requests, on a real node, with 1, 2 and 4 replicas
    Admission,
    /// The traffic-controller while it reads 1,000 simulated kube-proxies for 200 pods: CPU time, memory
    Evidence,
    /// CloneSets on a simulated cluster: updates in place, scale-in and scale-out; time, writes, memory
    Clonesets,
    /// The service-discovery-bridge with real registries and 10,000 simulated pods: time, rate, CPU time, memory
    Registries,
    /// Many opted-in pods at rest on a simulated cluster: memory, CPU time, time until a new leader decides
    Scale,
}

impl Bench {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let names = if self.benchmarks.is_empty() {
            let can_run = |name: &Benchmark| self.compare.is_none() || *name != Benchmark::Engine;
            Benchmark::value_variants().iter().copied().filter(can_run).collect()
        } else {
            self.benchmarks.clone()
        };
        let is_selected = |name| names.contains(&name);
        ensure!(
            self.pods.is_none()
                || [Benchmark::Rules, Benchmark::Registries, Benchmark::Scale].into_iter().any(is_selected),
            "--pods is for the benchmarks rules, registries and scale, of which none is selected: name one, or leave out --pods"
        );
        ensure!(
            !self.drop_managed_fields || [Benchmark::Drain, Benchmark::Restart].into_iter().any(is_selected),
            "--drop-managed-fields is for the benchmarks drain and restart, of which none is selected: name one, or leave it out"
        );
        ensure!(
            self.part.is_empty() && self.registry.is_empty() || is_selected(Benchmark::Registries),
            "--part and --registry are for the benchmark registries, which is not selected: name it, or leave them out"
        );
        let base = match &self.compare {
            None => None,
            Some(_) if names.contains(&Benchmark::Engine) => bail!(
                "--compare needs the names of benchmarks: engine prints its figures by itself and has no report"
            ),
            Some(commit) => Some(compare::build(commit, PROFILE).await?),
        };
        let mut reports = Map::new();
        for name in names {
            println!("== {}", label(name));
            if name == Benchmark::Engine {
                engine().await?;
                continue;
            }
            let supervisor = name.supervisor().await?;
            let programs = build_workspace(PROFILE).await?;
            let Some(base) = &base else {
                let report =
                    load(&programs, &label(name), &self.arguments(name, &programs)?, supervisor.as_deref())
                        .await?;
                reports.insert(label(name), report);
                continue;
            };
            let mut sides = [Vec::new(), Vec::new()];
            for _ in 0..self.runs {
                for (programs, side) in [base, &programs].into_iter().zip(&mut sides) {
                    let arguments = self.arguments(name, programs)?;
                    side.push(load(programs, &label(name), &arguments, supervisor.as_deref()).await?);
                }
            }
            let [base, now] = sides;
            print!("{}", figures::table(&base, &now));
            reports.insert(label(name), json!({"base": base, "now": now}));
        }
        if let Some(file) = self.json {
            let text = serde_json::to_string_pretty(&reports)?;
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write the reports to {}", file.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the arguments of the load generator for the benchmark `name` of `programs`.
    fn arguments(&self, name: Benchmark, programs: &BuiltPrograms) -> Result<Vec<OsString>> {
        let words: Vec<String> = match name {
            Benchmark::Webhook | Benchmark::Flood | Benchmark::Replicas => {
                return Ok(vec![programs.path("mutating-webhook")?.into()]);
            }
            Benchmark::Deletes => return Ok(vec![programs.path("validating-webhook")?.into()]),
            Benchmark::Drain | Benchmark::Restart => {
                self.drop_managed_fields.then(|| "drop-managed-fields".to_owned()).into_iter().collect()
            }
            Benchmark::Rules => self.pods.iter().chain(&self.asking).map(usize::to_string).collect(),
            Benchmark::Scale => self.pods.iter().map(usize::to_string).collect(),
            Benchmark::Registries => {
                let pods = self.pods.as_ref().map(usize::to_string);
                pods.into_iter().chain(self.part.clone()).chain(self.registry.clone()).collect()
            }
            _ => Vec::new(),
        };
        Ok(words.into_iter().map(OsString::from).collect())
    }
}

impl Benchmark {
    /// Builds the programs of the cluster that the benchmark needs, and returns the supervisor of clusters. `None` if it
    /// needs none.
    async fn supervisor(self) -> Result<Option<PathBuf>> {
        let prepared = match self {
            Self::Engine | Self::Webhook | Self::Flood | Self::Replicas | Self::Deletes => return Ok(None),
            Self::Admission => prepare::test_cluster(&Part::ALL, true).await?,
            Self::Registries => {
                let parts = [Shape::Simulated.parts(), &Part::REGISTRIES].concat();
                prepare::test_cluster(&parts, false).await?
            }
            _ => prepare::test_cluster(Shape::Simulated.parts(), false).await?,
        };
        Ok(Some(prepared.supervisor))
    }
}

fn label(name: Benchmark) -> String {
    name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

async fn engine() -> Result<()> {
    let mut command = podward_images::cargo();
    command.args(["bench", "--profile", PROFILE, "--package", "podward-core"]);
    command.args(["--bench", "advance", "--bench", "rules"]);
    let status = console::run(&mut command, "cargo bench").await?;
    ensure!(status.success(), "cargo bench ended with {status}; its messages are above");
    Ok(())
}

/// Runs the benchmark `what` of the load generator, prints its report and returns it. Its progress is on the standard
/// error.
async fn load(
    programs: &BuiltPrograms,
    what: &str,
    arguments: &[OsString],
    supervisor: Option<&Path>,
) -> Result<Value> {
    let mut command = tokio::process::Command::new(programs.path("podward-load")?);
    command.arg(what).args(arguments);
    // As the chart sets them for the services whose memory is measured.
    if what == "registries" || what == "clonesets" {
        command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_TRIM_THRESHOLD_", "131072");
    }
    if let Some(supervisor) = supervisor {
        command.env("PODWARD_TESTBED_BIN", supervisor);
    }
    let child = command.stdout(Stdio::piped()).spawn().context("cannot start podward-load")?;
    let output =
        child.wait_with_output().await.with_context(|| format!("cannot run the benchmark {what}"))?;
    ensure!(output.status.success(), "the benchmark {what} ended with {}", output.status);
    let report = String::from_utf8_lossy(&output.stdout);
    println!("{}", report.trim_end());
    serde_json::from_str(&report).with_context(|| format!("the benchmark {what} printed no report"))
}
