//! `cargo xtask testbed`: test clusters for development.

mod build;
mod down;
mod exec;
mod faults;
mod name;
mod real_nodes;
mod status;
mod up;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// The commands for test clusters.
#[derive(Debug, Subcommand)]
pub(crate) enum Testbed {
    Build(build::Build),
    Up(up::Up),
    Down(down::Down),
    Status(status::Status),
    Exec(exec::Exec),
    CutOff(faults::CutOff),
    Restore(faults::Restore),
    Stop(faults::Stop),
    Start(faults::Start),
    Lag(faults::Lag),
}

impl Testbed {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Build(build) => build.run().await,
            Self::Up(up) => up.run().await,
            Self::Down(down) => down.run().await,
            Self::Status(status) => status.run().await,
            Self::Exec(exec) => exec.run().await,
            Self::CutOff(cut_off) => cut_off.run().await,
            Self::Restore(restore) => restore.run().await,
            Self::Stop(stop) => stop.run().await,
            Self::Start(start) => start.run().await,
            Self::Lag(lag) => lag.run().await,
        }
    }
}
