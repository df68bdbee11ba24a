//! What `kubectl podward why` says about pods of a real node that is broken.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use podward_e2e::{Fixture, Test};
use podward_support::{pods, within};
use serde_json::json;

use crate::failures::test_cluster;
use crate::spread_workload::LONG;

const POLL: Duration = Duration::from_millis(300);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::nodes("why_a_node_without_its_runtime_is_not_ready", without_runtime),
        Test::nodes("why_a_node_without_its_kubelet_is_lost", without_kubelet),
        Test::nodes("why_a_node_has_no_addresses_left", without_addresses),
    ]
}

/// Creates a pod on node2.
async fn create(fixture: &Fixture, name: &str) -> Result<()> {
    let mut spec = pods::server_spec(&fixture.images().v1);
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": "node2"});
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    fixture
        .api()
        .create(&PostParams::default(), &pod)
        .await
        .map(drop)
        .with_context(|| format!("make pod {name}"))
}

async fn until_ready(fixture: &Fixture, name: &str) -> Result<()> {
    fixture.feed().until_within(LONG, name, "it is Ready", pods::is_ready).await.map(drop)
}

/// Requires that the first line ends with the next command.
fn ends_with(said: &str, next: &str) -> Result<()> {
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&format!("; next: {next}"))), "{said}");
    Ok(())
}

/// The kubelet reports that its runtime is down, and that its pods are Ready: their containers run on.
async fn without_runtime(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    create(&fixture, "web").await?;
    until_ready(&fixture, "web").await?;
    let node = test_cluster(&fixture)?.node("node2")?;
    node.process("containerd").await?.stop().await?;
    let reason = "  node node2: Ready False (KubeletNotReady): ";
    let said =
        fixture.until_why("web", "its node node2 is not Ready: ", &[reason, "kubelet lease: renewed "]).await;
    node.start("containerd").await?;
    let said = said?;
    ensure!(said.lines().next().is_some_and(|line| line.contains("container runtime")), "{said}");
    ends_with(&said, "kubectl describe node node2")?;
    until_ready(&fixture, "web").await
}

/// The node controller waits for the kubelet, and then counts the node as lost.
async fn without_kubelet(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    create(&fixture, "web").await?;
    until_ready(&fixture, "web").await?;
    let node = test_cluster(&fixture)?.node("node2")?;
    node.process("kubelet").await?.stop().await?;
    let evidence = [
        "  node node2: Ready Unknown (NodeStatusUnknown): Kubelet stopped posting node status.",
        "  taint node.kubernetes.io/unreachable: the pod is deleted in ",
    ];
    let said = fixture.until_why("web", "its node node2 does not report (", &evidence).await;
    node.start("kubelet").await?;
    ends_with(&said?, "kubectl describe node node2")?;
    until_ready(&fixture, "web").await
}

/// The network plugin of the node hands out addresses of which none is left. The test takes them, as pods do.
async fn without_addresses(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let taken = test_cluster(&fixture)?.dir().join("node2/cni/ipam/cluster");
    fs::create_dir_all(&taken).with_context(|| format!("make {}", taken.display()))?;
    until_freed(&fixture, &taken).await?;
    let files = take_addresses(&taken)?;
    create(&fixture, "web").await?;
    let words = "the network of the pod cannot be made on node node2: ";
    let said = fixture.until_why("web", words, &["event FailedCreatePodSandBox"]).await;
    for file in &files {
        fs::remove_file(taken.join(file)).with_context(|| format!("free the address {file}"))?;
    }
    let said = said?;
    let first = said.lines().next().unwrap_or_default();
    ensure!(first.contains("no IP addresses available in range set: 10.244.1.1-10.244.1.254"), "{said}");
    ends_with(&said, "kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=node2")?;
    until_ready(&fixture, "web").await
}

/// Waits until the addresses in the folder of the plugin host-local belong to pods that exist: the kubelet frees those of
/// other tests after their pods are gone.
async fn until_freed(fixture: &Fixture, folder: &Path) -> Result<()> {
    let of_node = ListParams::default().fields("spec.nodeName=node2");
    let freed = async {
        loop {
            let pods =
                Api::<Pod>::all(fixture.client()).list(&of_node).await.context("list the pods of node2")?;
            let used: Vec<_> = pods.items.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
            if addresses(folder)?.iter().all(|address| used.contains(address)) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(LONG, || format!("the addresses of other tests in {} to be free", folder.display()), freed).await
}

/// Returns the addresses in the folder of the plugin host-local.
fn addresses(folder: &Path) -> Result<Vec<String>> {
    let files = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let names = files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    Ok(names.into_iter().filter(|name| name.starts_with("10.244.1.")).collect())
}

/// Takes all free addresses of node2 in the folder of the plugin host-local. Returns the names of the new files.
fn take_addresses(folder: &Path) -> Result<Vec<String>> {
    let mut taken = Vec::new();
    for number in 2..=254 {
        let name = format!("10.244.1.{number}");
        let path = folder.join(&name);
        let made = fs::OpenOptions::new().write(true).create_new(true).open(&path);
        match made {
            Ok(_) => taken.push(name),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("take {name}")),
        }
    }
    Ok(taken)
}
