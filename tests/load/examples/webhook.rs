//! Measures the mutating webhook: `cargo run --profile bench-lite -p podward-load --example webhook -- PROGRAM [SECONDS]`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use podward_load::webhook::{WebhookOptions, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let program = args.next().context("give the path of mutating-webhook")?;
    let seconds = args
        .next()
        .map_or(Ok(10), |seconds| seconds.parse())
        .context("give seconds as a number")?;
    let options = WebhookOptions {
        program: PathBuf::from(program),
        each: Duration::from_secs(seconds),
        connections: 8,
    };
    let report = run(options).await?;
    for [what, aim, found] in report.rows() {
        eprintln!("{what:34} {aim:>10} {found:>24}");
    }
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
