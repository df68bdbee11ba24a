//! The service-discovery-bridge of Podward.

use clap::Parser;
use service_discovery_bridge::{Args, run};

fn main() -> anyhow::Result<()> {
    run(Args::parse())
}
