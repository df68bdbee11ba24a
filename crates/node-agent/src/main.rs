//! The node-agent of Podward.

use clap::Parser;
use node_agent::{Args, run};

fn main() -> anyhow::Result<()> {
    run(Args::parse())
}
