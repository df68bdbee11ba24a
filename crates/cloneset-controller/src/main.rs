//! The cloneset-controller of Podward.

use clap::Parser;
use cloneset_controller::{Args, run};

fn main() -> anyhow::Result<()> {
    run(Args::parse())
}
