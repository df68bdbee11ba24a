//! Command line.

use clap::{Parser, ValueEnum};
use podward_runtime::args::{KubeArgs, LeaseArgs, ProcessArgs};

/// Podward's cloneset-controller: creates, updates and deletes the pods of CloneSets
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) kube: KubeArgs,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// Whether CloneSets are left to OpenKruise
    #[arg(long, env = "PODWARD_CLONESET_MODE", default_value = "auto")]
    pub(crate) mode: Mode,
}

/// Whether CloneSets are left to OpenKruise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// While OpenKruise is installed, also if it is installed later
    Auto,
    /// Never
    Always,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn the_arguments_fit_together() {
        Args::command().debug_assert();
    }
}
