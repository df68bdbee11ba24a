//! The mutating webhook of Podward.

use clap::Parser;
use mutating_webhook::Args;

fn main() -> anyhow::Result<()> {
    Args::parse().run()
}
