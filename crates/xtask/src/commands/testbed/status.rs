//! `cargo xtask testbed status`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use podward_testbed::{Bed, BedInfo};

/// How long an API server may take to answer before it is called silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// List the clusters that run.
#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let beds = Bed::list()?;
        if beds.is_empty() {
            println!("no cluster runs; start one: cargo xtask testbed up");
            return Ok(ExitCode::SUCCESS);
        }
        for bed in beds {
            let kind = if bed.detached { "until taken down" } else { "as long as its owner" };
            println!("{}  ({}, {}, {kind})", bed.name, bed.id, bed.shape);
            println!("  folder      {}", bed.dir.display());
            match tokio::time::timeout(PATIENCE, look(&bed)).await {
                Ok(Ok(lines)) => lines.iter().for_each(|line| println!("  {line}")),
                Ok(Err(error)) => println!("  not usable  {error:#}"),
                Err(_) => println!("  not usable  no answer in {} s", PATIENCE.as_secs()),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn look(info: &BedInfo) -> Result<Vec<String>> {
    let bed = Bed::attach(&info.id).await?;
    let client = bed.client();
    let version = client.apiserver_version().await?;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let pods = Api::<Pod>::all(client).list_metadata(&ListParams::default()).await?;
    Ok(vec![
        format!("kubeconfig  {}", bed.kubeconfig().display()),
        format!("logs        {}", bed.logs_dir().display()),
        format!(
            "cluster     {}, {} nodes, {} pods",
            version.git_version,
            nodes.items.len(),
            pods.items.len()
        ),
    ])
}
