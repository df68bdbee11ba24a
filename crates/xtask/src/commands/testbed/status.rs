//! `cargo xtask testbed status`: lists the running test clusters.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use podward_testbed::{TestCluster, TestClusterInfo};

/// The time in which an API server must answer.
const API_TIMEOUT: Duration = Duration::from_secs(5);

/// List the running clusters.
#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let beds = TestCluster::list()?;
        if beds.is_empty() {
            println!("no cluster is running; start one: cargo xtask testbed up");
            return Ok(ExitCode::SUCCESS);
        }
        for bed in beds {
            let kind = if bed.detached {
                "runs until it is taken down"
            } else {
                "ends with the process that started it"
            };
            println!("{}  ({}, {}, {kind})", bed.name, bed.id, bed.shape);
            println!("  folder      {}", bed.dir.display());
            match tokio::time::timeout(API_TIMEOUT, look(&bed)).await {
                Ok(Ok(lines)) => lines.iter().for_each(|line| println!("  {line}")),
                Ok(Err(error)) => println!("  not usable  {error:#}"),
                Err(_) => println!("  not usable  no answer in {} s", API_TIMEOUT.as_secs()),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the facts about a cluster, one a line.
async fn look(info: &TestClusterInfo) -> Result<Vec<String>> {
    let bed = TestCluster::attach(&info.id).await?;
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
