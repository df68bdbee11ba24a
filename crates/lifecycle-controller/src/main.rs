//! The lifecycle-controller of Podward.

use clap::Parser;
use lifecycle_controller::{Args, run};

fn main() -> anyhow::Result<()> {
    run(Args::parse())
}
