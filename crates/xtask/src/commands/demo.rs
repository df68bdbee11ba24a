//! `cargo xtask demo`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use podward_support::demo::{self, Act};
use podward_testbed::{Part, ProxyMode};

use crate::prepare;

/// What clients lose in a rolling update, an in-place update, a drain and a scale-in: without Podward, and with it.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
    /// Write the numbers for machines to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Use the cluster of this kubeconfig (kind, k3d, cloud) instead of one of our own
    #[arg(long, value_name = "FILE", env = "PODWARD_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: the address at which that cluster's API server reaches this machine, if it isn't the one that
    /// leads to its first node
    #[arg(long, value_name = "IP", requires = "kubeconfig")]
    address: Option<IpAddr>,
    /// iptables or nftables: how kube-proxy of the cluster of our own leads traffic
    #[arg(long, value_name = "MODE", default_value_t, conflicts_with = "kubeconfig")]
    proxy_mode: ProxyMode,
    /// The cargo profile of the images of Podward's services [default: bench-lite]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Only these acts
    #[arg(long = "act", value_name = "ACT", value_parser = act_parser())]
    acts: Vec<Act>,
    /// Only one side
    #[arg(long, value_enum, value_name = "SIDE")]
    only: Option<Side>,
    /// How often each act is played with Podward
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    Stock,
    Podward,
}

fn act_parser() -> impl TypedValueParser<Value = Act> {
    PossibleValuesParser::new(Act::ALL.map(Act::as_str))
        .try_map(|name| Act::ALL.into_iter().find(|act| act.as_str() == name).ok_or("no such act"))
}

impl Demo {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        if self.kubeconfig.is_none() {
            prepare::bed(&Part::ALL, true).await?;
        }
        let default = demo::Demo::default();
        let demo = demo::Demo {
            keep: self.keep,
            json: self.json,
            kubeconfig: self.kubeconfig,
            address: self.address,
            proxy_mode: self.proxy_mode,
            profile: self.profile.unwrap_or_else(|| default.profile.clone()),
            acts: self.acts,
            runs: self.runs,
            no_stock: self.only == Some(Side::Podward),
            no_podward: self.only == Some(Side::Stock),
            ..default
        };
        demo::run(demo).await?;
        Ok(ExitCode::SUCCESS)
    }
}
