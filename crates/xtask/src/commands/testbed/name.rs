//! The option `--name` of the commands for test clusters.

use clap::Args;

/// The name of a test cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterName {
    /// The cluster's name
    #[arg(long = "name", value_name = "NAME", default_value = "dev")]
    pub(crate) name: String,
}
