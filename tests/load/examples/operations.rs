//! The operations benchmark alone: `cargo run -p podward-load --profile bench-lite --example operations -- [SIZE..]`.

use anyhow::Result;
use podward_load::operations::{OperationsOptions, run};

#[tokio::main]
async fn main() -> Result<()> {
    let mut options = OperationsOptions::default();
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    if !sizes.is_empty() {
        options.at_once = sizes;
        options.bystanders = 0;
    }
    let report = run(&options, |step| eprintln!("{step}")).await?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
