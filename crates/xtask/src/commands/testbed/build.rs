//! `cargo xtask testbed build`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use podward_testbed::{Part, Progress, Tools};

/// Build the programs of a cluster into the cache folder.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// What to build; everything if nothing is named
    #[arg(value_enum)]
    parts: Vec<Choice>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Choice {
    ControlPlane,
    Node,
    Dns,
    Kwok,
    Helm,
}

impl From<Choice> for Part {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::ControlPlane => Self::ControlPlane,
            Choice::Node => Self::Node,
            Choice::Dns => Self::Dns,
            Choice::Kwok => Self::Kwok,
            Choice::Helm => Self::Helm,
        }
    }
}

impl Build {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let parts = match self.parts {
            named if named.is_empty() => Part::ALL.to_vec(),
            named => named.into_iter().map(Part::from).collect(),
        };
        let tools = Tools::ensure(&parts, &Progress::stderr()).await?;
        println!("{}", tools.dir().display());
        Ok(ExitCode::SUCCESS)
    }
}
