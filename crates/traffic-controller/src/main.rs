//! The traffic-controller of Podward.

use clap::Parser;
use traffic_controller::{Args, run};

fn main() -> anyhow::Result<()> {
    run(Args::parse())
}
