//! `cargo xtask demo`: requests lost without and with Podward.

mod choices;
mod cloneset;
mod registry;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use podward_support::demo;
use podward_testbed::{Part, ProxyMode};

use self::choices::DemoChoices;
use self::cloneset::CloneSetDemoCommand;
use self::registry::RegistryDemoCommand;
use crate::prepare;

/// Count the requests that a Deployment's clients lose without and with Podward.
///
/// The demo starts a cluster, puts a Deployment under load and performs a rolling update, an in-place update, a drain
/// and a scale-in: first without Podward, then with Podward. It prints a table of the requests that
/// failed, and fails if any request fails with Podward.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoCommand {
    #[command(subcommand)]
    other: Option<OtherDemo>,
    /// Use the cluster of this kubeconfig (kind, k3d, cloud) instead of starting one
    #[arg(long, value_name = "FILE", env = "PODWARD_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: the address of this machine as the cluster's API server sees it [default: the source address
    /// of the route to the first node]
    #[arg(long, value_name = "IP", requires = "kubeconfig")]
    address: Option<IpAddr>,
    /// Mode of kube-proxy in the cluster that the demo starts: iptables or nftables
    #[arg(long, value_name = "MODE", default_value_t, conflicts_with = "kubeconfig")]
    proxy_mode: ProxyMode,
    /// Number of real nodes of the cluster that the demo starts, 1 to 3; with several, clients run on each node, and use
    /// the Service as well as the node ports of a Service with external traffic policy Local
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "kubeconfig", value_parser = node_count())]
    nodes: usize,
    /// Install the node-agent, too: connections to the pods are then evidence of requests in flight
    #[arg(long, conflicts_with = "kubeconfig")]
    node_agent: bool,
    /// Draw the losses over time, the trace of a pod and the dashboard into this folder, as demo.svg, trace.svg and
    /// dashboard.svg
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    #[command(flatten)]
    choices: DemoChoices,
}

/// A demo of something other than Services.
#[derive(Debug, Subcommand)]
enum OtherDemo {
    Registry(RegistryDemoCommand),
    Cloneset(CloneSetDemoCommand),
}

fn node_count() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u8).range(1..=3).map(usize::from)
}

impl DemoCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        match self.other {
            Some(OtherDemo::Registry(demo)) => return demo.run().await,
            Some(OtherDemo::Cloneset(demo)) => return demo.run().await,
            None => {}
        }
        if self.kubeconfig.is_none() {
            let recorder = self.pictures.as_ref().map(|_| Part::Prometheus);
            let parts: Vec<Part> = Part::ALL.into_iter().chain(recorder).collect();
            prepare::test_cluster(&parts, true).await?;
        }
        let demo = demo::Demo {
            kubeconfig: self.kubeconfig,
            address: self.address,
            proxy_mode: self.proxy_mode,
            nodes: self.nodes,
            node_agent: self.node_agent,
            pictures: self.pictures,
            ..self.choices.into_demo()
        };
        demo::run(demo).await?;
        Ok(ExitCode::SUCCESS)
    }
}
