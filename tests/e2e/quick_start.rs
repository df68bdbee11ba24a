//! What `docs/quick-start.md` does with a Deployment, on a cluster as its commands start it.
#![forbid(unsafe_code)]
// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use podward_images::{DemoImages, build_program, workspace_dir};
use podward_support::{Cluster, Podward, PodwardOptions};
use podward_testbed::{Part, Shape, TestCluster, TestClusterBuilder, preflight};

/// What the page leaves to the reader: to wait, and to name a pod. It says what the cluster says about a delete.
const DELETE: &str = "
set -e
kubectl wait --for=condition=Ready pod -l app=web --timeout=120s
kubectl wait --for=jsonpath='{.metadata.labels.podopslifecycle\\.kusionstack\\.io/service-available}' pod -l app=web --timeout=60s
kubectl get pods -L podopslifecycle.kusionstack.io/service-available
pod=$(kubectl get pods -l app=web -o jsonpath='{.items[0].metadata.name}')
if kubectl delete pod $pod; then echo 'the delete was not held'; exit 1; fi
kubectl podward why $pod
kubectl wait --for=delete pod/$pod --timeout=120s
kubectl events --for pod/$pod
";

/// Runs a script with kubectl and the plugin on the path, and returns its output. It must succeed.
fn shell(test_cluster: &TestCluster, plugin: &Path, script: &str) -> String {
    let kubectl = test_cluster.tools().bin("kubectl");
    let folders = [kubectl.parent().unwrap(), plugin.parent().unwrap()].map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new("bash");
    command.args(["-c", script]).env("PATH", path).env("KUBECONFIG", test_cluster.kubeconfig());
    said(&command.output().unwrap())
}

/// Returns what a command has said. It must have succeeded.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text.into_owned()
}

/// As `cargo xtask testbed up --podward` starts it, and then as the page says.
#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_works() {
    let missing = preflight(&[Part::ControlPlane, Part::Node, Part::Dns], true);
    assert!(missing.is_empty(), "{missing:?}");
    let plugin = build_program("kubectl-podward", "dev").await.unwrap();
    build_program("podward-testbed", "dev").await.unwrap();
    let images = DemoImages::default().build("dev").await.unwrap();
    let builder = TestCluster::builder(Shape::Node).name("quick-start").dns(true);
    let builder = images.into_iter().fold(builder, TestClusterBuilder::image);
    let test_cluster = Arc::new(builder.start().await.unwrap());
    let cluster = Cluster::of_test_cluster(Arc::clone(&test_cluster));
    let podward = Podward::start(&cluster, PodwardOptions::default()).await.unwrap();

    let page = fs::read_to_string(workspace_dir().join("docs/quick-start.md")).unwrap();
    let (_, workload) = page.split_once("kubectl apply -f - <<'END'\n").unwrap();
    let (workload, _) = workload.split_once("\nEND\n").unwrap();
    shell(&test_cluster, &plugin, &format!("kubectl apply -f - <<'END'\n{workload}\nEND"));
    let said = shell(&test_cluster, &plugin, DELETE);
    println!("{said}");
    for words in [
        "denied the request: pod deletion process is underway",
        "(delete) waits for hook traffic-controller to release the pod",
        "\ntraffic: hook traffic-controller: has the pod",
        "PodDeletion",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    podward.shutdown().await.unwrap();
}
