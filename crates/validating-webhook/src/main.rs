//! The validating webhook of Podward.

use clap::Parser;
use validating_webhook::Args;

fn main() -> anyhow::Result<()> {
    Args::parse().run()
}
