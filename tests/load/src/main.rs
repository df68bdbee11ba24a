//! Runs one benchmark: `podward-load operations [SIZE..]`, `podward-load drain`, `podward-load restart [PODS]`,
//! `podward-load rules [PODS [ASKING]]`, `podward-load admission`, `podward-load evidence [NODES [PODS]]`,
//! `podward-load clonesets`, `podward-load registries [PODS] [service=PODS] [PART..] [REGISTRY..]`,
//! `podward-load scale [PODS]`, or `podward-load BENCHMARK PROGRAM [SECONDS]` with webhook, deletes, flood or replicas.
//! It prints the report as JSON on standard output. `cargo xtask bench` builds the programs and runs it.
//! `podward-load kube-proxies` is a part of the benchmark evidence.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use podward_load::admission::{self, AdmissionOptions};
use podward_load::clonesets::{self, CloneSetsOptions};
use podward_load::drain::{self, DrainOptions};
use podward_load::evidence::{self, EvidenceOptions};
use podward_load::operations::{self, OperationsOptions};
use podward_load::registries::{self, RegistriesOptions};
use podward_load::restart::{self, RestartOptions};
use podward_load::rules::{self, RulesOptions};
use podward_load::scale::{self, ScaleOptions};
use podward_load::webhook::{self, WebhookOptions};
use serde::Serialize;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.next().as_deref() {
        Some("operations") => runtime.block_on(measure_operations(arguments.collect())),
        Some("drain") => runtime.block_on(measure_drain(arguments.collect())),
        Some("restart") => runtime.block_on(measure_restart(arguments.collect())),
        Some("rules") => runtime.block_on(measure_rules(arguments.collect())),
        Some("admission") => runtime.block_on(measure_admission()),
        Some("clonesets") => runtime.block_on(measure_clonesets()),
        Some("evidence") => runtime.block_on(measure_evidence(arguments.collect())),
        Some(evidence::KUBE_PROXIES) => runtime.block_on(evidence::serve_kube_proxies()),
        Some("registries") => runtime.block_on(measure_registries(arguments.collect())),
        Some("scale") => runtime.block_on(measure_scale(arguments.next())),
        Some("webhook") => runtime.block_on(measure_webhook(arguments.collect())),
        Some("flood") => runtime.block_on(measure_flood(arguments.collect())),
        Some("replicas") => runtime.block_on(measure_replicas(arguments.collect())),
        Some("deletes") => runtime.block_on(measure_deletes(arguments.collect())),
        _ => bail!(
            "say what to measure: operations [SIZE..], drain [drop-managed-fields], restart [PODS] [drop-managed-fields], rules [PODS [ASKING]], admission, evidence [NODES [PODS]], clonesets, registries [PODS] [service=PODS] [PART..] [REGISTRY..], scale [PODS], webhook PROGRAM [SECONDS], deletes PROGRAM [SECONDS], flood PROGRAM [SECONDS], or replicas PROGRAM [SECONDS]"
        ),
    }
}

async fn measure_operations(sizes: Vec<String>) -> Result<()> {
    let mut options = OperationsOptions::default();
    if !sizes.is_empty() {
        let sizes: Result<Vec<usize>, _> = sizes.iter().map(|size| size.parse()).collect();
        options.at_once = sizes.context("give the sizes of groups as numbers")?;
        options.bystanders = 0;
    }
    print(&operations::run(&options, |step| eprintln!("{step}")).await?)
}

async fn measure_drain(mut words: Vec<String>) -> Result<()> {
    let drops_managed_fields = take_drop_managed_fields(&mut words);
    ensure!(words.is_empty(), "drain does not know {words:?}");
    let options = DrainOptions { drops_managed_fields, ..DrainOptions::default() };
    print(&drain::run(&options, |step| eprintln!("{step}")).await?)
}

async fn measure_restart(mut words: Vec<String>) -> Result<()> {
    let mut options = RestartOptions::default();
    options.drops_managed_fields = take_drop_managed_fields(&mut words);
    options.pods = number_of_pods(words.pop(), options.pods)?;
    print(&restart::run(&options, |step| eprintln!("{step}")).await?)
}

/// Removes the word `drop-managed-fields`. Returns whether it was there.
fn take_drop_managed_fields(words: &mut Vec<String>) -> bool {
    let before = words.len();
    words.retain(|word| word != "drop-managed-fields");
    words.len() != before
}

async fn measure_rules(sizes: Vec<String>) -> Result<()> {
    let sizes: Result<Vec<usize>, _> = sizes.iter().map(|size| size.parse()).collect();
    let sizes = sizes.context("give the number of pods, and of those that ask, as numbers")?;
    let mut options = RulesOptions::default();
    if let Some(&pods) = sizes.first() {
        options.pods = pods;
        // The same proportion as by default.
        options.check_request = sizes.get(1).copied().unwrap_or(pods / 10);
    }
    print(&rules::run(&options, |step| eprintln!("{step}")).await?)
}

async fn measure_admission() -> Result<()> {
    print(&admission::run(&AdmissionOptions::default(), |step| eprintln!("{step}")).await?)
}

async fn measure_evidence(sizes: Vec<String>) -> Result<()> {
    let sizes: Result<Vec<usize>, _> = sizes.iter().map(|size| size.parse()).collect();
    let sizes = sizes.context("give the number of nodes, and of pods that are held, as numbers")?;
    let mut options = EvidenceOptions::default();
    options.nodes = sizes.first().copied().unwrap_or(options.nodes);
    options.pods = sizes.get(1).copied().unwrap_or(options.pods);
    print(&evidence::run(&options, |step| eprintln!("{step}")).await?)
}

async fn measure_clonesets() -> Result<()> {
    print(&clonesets::run(&CloneSetsOptions::default(), |step| eprintln!("{step}")).await?)
}

async fn measure_registries(words: Vec<String>) -> Result<()> {
    let options = RegistriesOptions::parse(&words)?;
    print(&registries::run(&options, |step| eprintln!("{step}")).await?)
}

async fn measure_scale(pods: Option<String>) -> Result<()> {
    let mut options = ScaleOptions::default();
    options.pods = number_of_pods(pods, options.pods)?;
    print(&scale::run(&options, |step| eprintln!("{step}")).await?)
}

fn number_of_pods(word: Option<String>, default: usize) -> Result<usize> {
    word.map_or(Ok(default), |word| word.parse()).context("give the number of pods as a number")
}

async fn measure_webhook(arguments: Vec<String>) -> Result<()> {
    let report = webhook::run(webhook_options(&arguments)?).await?;
    table(report.rows());
    print(&report)
}

async fn measure_flood(arguments: Vec<String>) -> Result<()> {
    let report = webhook::run_flood(webhook_options(&arguments)?).await?;
    table(report.rows());
    print(&report)
}

async fn measure_replicas(arguments: Vec<String>) -> Result<()> {
    let report = webhook::run_replicas(webhook_options(&arguments)?).await?;
    table(report.rows());
    print(&report)
}

async fn measure_deletes(arguments: Vec<String>) -> Result<()> {
    let report = webhook::run_deletes(webhook_options(&arguments)?).await?;
    table(report.rows());
    print(&report)
}

fn webhook_options(arguments: &[String]) -> Result<WebhookOptions> {
    let program = arguments.first().context("give the path of the webhook")?;
    let seconds =
        arguments.get(1).map_or(Ok(10), |seconds| seconds.parse()).context("give seconds as a number")?;
    Ok(WebhookOptions { program: PathBuf::from(program), each: Duration::from_secs(seconds), connections: 8 })
}

fn table(rows: Vec<[String; 3]>) {
    for [what, aim, found] in rows {
        eprintln!("{what:34} {aim:>10} {found:>24}");
    }
}

fn print(report: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(report)?);
    Ok(())
}
