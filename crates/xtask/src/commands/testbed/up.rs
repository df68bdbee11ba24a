//! `cargo xtask testbed up`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use podward_support::{Cluster, DemoImages, Options, Podward};
use podward_testbed::{Bed, Part, Progress, ProxyMode, Shape};

use super::Name;
use crate::prepare;

/// Start a cluster that stays until it is taken down.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// control-plane (no pod ever runs), simulated (pods run in name only) or node (pods run; needs root)
    #[arg(long, default_value_t = Shape::Node)]
    shape: Shape,
    /// iptables or nftables: how kube-proxy leads traffic on a real node
    #[arg(long, value_name = "MODE", default_value_t)]
    proxy_mode: ProxyMode,
    /// Run Podward's services in it
    #[arg(long)]
    podward: bool,
    /// The cargo profile of what runs in it
    #[arg(long, value_name = "NAME", default_value = "dev")]
    profile: String,
    #[command(flatten)]
    name: Name,
}

impl Up {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let node = self.shape == Shape::Node;
        let mut parts = self.shape.parts().to_vec();
        // For people, who find it on the PATH of `exec`.
        parts.push(Part::Helm);
        parts.extend(node.then_some(Part::Dns));
        let tools = prepare::bed(&parts, node).await?.tools;
        let progress = Progress::stderr();
        let name = &self.name.name;
        let mut builder =
            Bed::builder(self.shape).name(name).tools(tools).dns(node).proxy_mode(self.proxy_mode);
        let images = DemoImages::default();
        if node {
            // No registry is within reach of the node: without these there would be nothing to run.
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
        let bed = Arc::new(Bed::up_detached(builder).await?);
        let took = started.elapsed();
        step.done();
        if self.podward {
            let step = progress.step("build and start Podward's services", None);
            let options = Options { profile: self.profile, ..Options::default() };
            let cluster = Cluster::of_bed(bed.clone());
            // The services are the bed's processes, so they go on when this program ends.
            let started = Podward::start(&cluster, options).await;
            started.with_context(|| format!("{} runs, but Podward doesn't", bed.id()))?;
            step.done();
        }

        let named = if name == "dev" { String::new() } else { format!(" --name {name}") };
        println!("{} runs after {:.1} s", bed.id(), took.as_secs_f64());
        println!("  from this machine:   export KUBECONFIG={}", bed.kubeconfig().display());
        println!(
            "  in its network:      cargo xtask testbed exec{named} -- kubectl get pods --all-namespaces"
        );
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
