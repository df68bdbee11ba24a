//! `cargo xtask demo`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use podward_support::demo;
use podward_testbed::Shape;

use crate::prepare;

/// An in-place update of six pods that loses no traffic, step by step.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
    /// Write the timeline for machines to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Use the cluster of this kubeconfig (kind, k3d, cloud) instead of one of our own
    #[arg(long, value_name = "FILE", env = "PODWARD_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: the address at which that cluster's API server reaches this machine, if it isn't the one that
    /// leads to its first node
    #[arg(long, value_name = "IP", requires = "kubeconfig")]
    address: Option<IpAddr>,
    /// The cargo profile of Podward's services [default: bench-lite]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        if self.kubeconfig.is_none() {
            prepare::bed(Shape::Node.parts(), true).await?;
        }
        let Self { keep, json, kubeconfig, address, profile } = self;
        let default = demo::Demo::default();
        let profile = profile.unwrap_or(default.profile);
        demo::run(demo::Demo { keep, json, kubeconfig, address, profile, images: default.images }).await?;
        Ok(ExitCode::SUCCESS)
    }
}
