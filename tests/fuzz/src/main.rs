//! Fuzzes what Podward reads from others. `cargo xtask fuzz` builds it and runs it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use podward_fuzz::campaign::{self, Campaign, CampaignReport};
use podward_fuzz::{Input, Target, supervise, targets};

/// Sends random inputs, made from valid ones, to everything that reads what others have written.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fuzz", bin_name = "cargo xtask fuzz")]
struct Cli {
    #[command(subcommand)]
    worker: Option<Worker>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Worker {
    /// Run the campaign of one target in this process
    #[command(hide = true)]
    Worker(Options),
}

#[derive(Clone, Debug, Args)]
struct Options {
    /// The targets; all if none is named
    targets: Vec<String>,
    /// Number of inputs for each target [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    inputs: Option<u64>,
    /// Time for all targets together, in seconds [default: 60, or no limit with --inputs]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Begins the random numbers: the same seed gives the same inputs [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Largest resident memory of a target's process, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u64,
    /// Folder of inputs that fail
    #[arg(long, value_name = "DIR", default_value = "target/fuzz")]
    folder: PathBuf,
    /// Handle only the input in this file
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

const DEFAULT_SECONDS: u64 = 60;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.worker {
        Some(Worker::Worker(options)) => work(&options),
        None => fuzz(&cli.options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a process for each target. Returns true if no input failed.
fn fuzz(options: &Options) -> Result<bool> {
    let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
    let chosen: Vec<&str> = match options.targets.is_empty() {
        true => names,
        false => {
            for name in &options.targets {
                anyhow::ensure!(
                    names.contains(&name.as_str()),
                    "there is no target {name}; the targets are {}",
                    names.join(", ")
                );
            }
            options.targets.iter().map(String::as_str).collect()
        }
    };
    let seconds = options.seconds.or(options.inputs.is_none().then_some(DEFAULT_SECONDS));
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}, at most {} MiB", options.memory);
    let mut arguments = vec![format!("--memory={}", options.memory), format!("--seed={seed}")];
    arguments.push(format!("--folder={}", options.folder.display()));
    arguments.extend(options.inputs.map(|inputs| format!("--inputs={inputs}")));
    arguments.extend(options.input.as_ref().map(|file| format!("--input={}", file.display())));
    if let Some(seconds) = seconds {
        let each = seconds.div_ceil(u64::try_from(chosen.len()).unwrap_or(1));
        arguments.push(format!("--seconds={each}"));
    }
    let mut passed = true;
    for name in chosen {
        // The next targets run too, so that one run shows all failures.
        passed &= supervise::run(name, &arguments, &options.folder)?;
    }
    Ok(passed)
}

/// Runs the campaign of one target. Returns true if no input failed.
fn work(options: &Options) -> Result<bool> {
    let name = options.targets.first().context("name a target")?;
    let target = targets().into_iter().find(|target| target.name == name);
    let target = target.with_context(|| format!("there is no target {name}"))?;
    if let Some(file) = &options.input {
        return repeat(&target, file);
    }
    let campaign = Campaign {
        inputs: options.inputs.unwrap_or(u64::MAX),
        time: options.seconds.map(Duration::from_secs),
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..)),
        memory: options.memory.saturating_mul(1024 * 1024),
        folder: options.folder.clone(),
    };
    let report = campaign::run(target, campaign)?;
    print(name, &report);
    if let Some(failure) = &report.failure {
        supervise::report(name, failure);
    }
    Ok(report.failure.is_none())
}

fn repeat(target: &Target, file: &PathBuf) -> Result<bool> {
    let content = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    match campaign::try_input(target, &Input::from_file(&content)) {
        Ok(_) => println!("{}: handled without a failure", target.name),
        Err(what) => {
            eprintln!("{}: {what}", target.name);
            return Ok(false);
        }
    }
    Ok(true)
}

fn print(name: &str, report: &CampaignReport) {
    let CampaignReport { inputs, took, outcomes, slowest, memory, failure: _ } = report;
    let rate = u128::from(*inputs) * 1000 / took.as_millis().max(1);
    println!(
        "{name:<12} {inputs:>9} inputs in {:>5.1} s, {rate:>6}/s, {outcomes:>6} different outcomes, \
         slowest {:>4} ms, peak memory {:>3} MiB",
        took.as_secs_f64(),
        slowest.as_millis(),
        memory / (1024 * 1024)
    );
}
