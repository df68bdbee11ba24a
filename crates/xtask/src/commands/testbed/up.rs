//! `cargo xtask testbed up`: starts a test cluster.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use podward_images::DemoImages;
use podward_support::{Cluster, Podward, PodwardOptions};
use podward_testbed::{Part, Progress, ProxyMode, Shape, TestCluster};

use super::{name::ClusterName, real_nodes::RealNodes};
use crate::prepare;

/// Start a cluster that runs until `cargo xtask testbed down` ends it.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// control-plane (no nodes, pods stay Pending), simulated (pods are Running but have no processes) or node (pods
    /// run; needs root)
    #[arg(long, default_value_t = Shape::Node)]
    shape: Shape,
    #[command(flatten)]
    nodes: RealNodes,
    /// Number of API servers, 1 or 2; the watches of the second can lag (`cargo xtask testbed lag`)
    #[arg(long, value_name = "N", default_value_t = 1)]
    api_servers: usize,
    /// Mode of kube-proxy on a real node: iptables or nftables
    #[arg(long, value_name = "MODE", default_value_t)]
    proxy_mode: ProxyMode,
    /// Start Podward's services
    #[arg(long)]
    podward: bool,
    /// Cargo profile of Podward's services and the demo server
    #[arg(long, value_name = "NAME", default_value = "dev")]
    profile: String,
    #[command(flatten)]
    name: ClusterName,
}

impl Up {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let node = self.shape == Shape::Node;
        let mut parts = self.shape.parts().to_vec();
        // `cargo xtask testbed exec` has it on the PATH.
        parts.push(Part::Helm);
        parts.extend(node.then_some(Part::Dns));
        let tools = prepare::test_cluster(&parts, node).await?.tools;
        let progress = Progress::stderr();
        let name = &self.name.name;
        let described =
            TestCluster::builder(self.shape).name(name).tools(tools).dns(node).proxy_mode(self.proxy_mode);
        let several = self.nodes.count() > 1;
        let mut builder = self.nodes.add_to(described).api_servers(self.api_servers);
        let images = DemoImages::default();
        if node {
            // The node cannot reach a registry, so these are the only images that pods can run.
            let step = progress.step("build the demo server's images", None);
            builder = images
                .build(&self.profile)
                .await?
                .into_iter()
                .fold(builder, |builder, image| builder.image(image));
            step.done();
        }
        let step = progress.step(&format!("start a cluster of shape {}", self.shape), None);
        let started = Instant::now();
        let bed = Arc::new(TestCluster::up_detached(builder).await?);
        let took = started.elapsed();
        step.done();
        if self.podward {
            let step = progress.step("build and start Podward's services", None);
            let options = PodwardOptions { profile: self.profile, ..PodwardOptions::default() };
            let cluster = Cluster::of_test_cluster(bed.clone());
            // The services are processes of the cluster, so they continue when this program ends.
            let started = Podward::start(&cluster, options).await;
            started.with_context(|| format!("{} runs, but Podward did not start", bed.id()))?;
            step.done();
        }

        let named = if name == "dev" { String::new() } else { format!(" --name {name}") };
        println!("{} runs after {:.1} s", bed.id(), took.as_secs_f64());
        println!("  from this machine:   export KUBECONFIG={}", bed.kubeconfig().display());
        println!(
            "  in its network:      cargo xtask testbed exec{named} -- kubectl get pods --all-namespaces"
        );
        if several {
            println!("  in a node's network: cargo xtask testbed exec{named} --node node2 -- ip addr");
        }
        if node {
            println!(
                "  images to run:       {} and {} (imagePullPolicy: IfNotPresent)",
                images.v1, images.v2
            );
        }
        println!("  its logs:            {}", bed.logs_dir().display());
        println!("  to end it:           cargo xtask testbed down{named}");
        Ok(ExitCode::SUCCESS)
    }
}
