//! `cargo xtask testbed build`: builds the programs of test clusters.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use podward_testbed::{Part, Progress, Tools};

/// Build the missing programs of a cluster, and the servers of registries, into the cache folder.
///
/// Prints the folder.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The programs to build; all if none is named
    #[arg(value_enum)]
    parts: Vec<PartChoice>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PartChoice {
    ControlPlane,
    Node,
    Dns,
    Kwok,
    Helm,
    Consul,
    Eureka,
    #[value(name = "zookeeper")]
    ZooKeeper,
    Nacos,
    Prometheus,
}

impl From<PartChoice> for Part {
    fn from(choice: PartChoice) -> Self {
        match choice {
            PartChoice::ControlPlane => Self::ControlPlane,
            PartChoice::Node => Self::Node,
            PartChoice::Dns => Self::Dns,
            PartChoice::Kwok => Self::Kwok,
            PartChoice::Helm => Self::Helm,
            PartChoice::Consul => Self::Consul,
            PartChoice::Eureka => Self::Eureka,
            PartChoice::ZooKeeper => Self::ZooKeeper,
            PartChoice::Nacos => Self::Nacos,
            PartChoice::Prometheus => Self::Prometheus,
        }
    }
}

impl Build {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let parts = match self.parts {
            named if named.is_empty() => [&Part::ALL[..], &Part::REGISTRIES].concat(),
            named => named.into_iter().map(Part::from).collect(),
        };
        let tools = Tools::ensure(&parts, &Progress::stderr()).await?;
        println!("{}", tools.dir().display());
        Ok(ExitCode::SUCCESS)
    }
}
