//! The commands of `docs/quick-start.md`, on the cluster that they start.
#![forbid(unsafe_code)]
// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use podward_images::{build_program, workspace_dir};
use podward_testbed::{Part, preflight};

const NAME: &str = "quick-start";
/// What the page leaves to the reader: to wait, and to name a pod. It says what the cluster says about a delete.
const DELETE: &str = "
set -e
kubectl wait --for=condition=Ready pod -l app=web --timeout=120s
kubectl wait --for=jsonpath='{.status.conditions[?(@.type==\"podward.io/lifecycle\")].reason}'=InService pod -l app=web --timeout=60s
kubectl get pods -L podopslifecycle.kusionstack.io/service-available
pod=$(kubectl get pods -l app=web -o jsonpath='{.items[0].metadata.name}')
if kubectl delete pod $pod; then echo 'the delete was not held'; exit 1; fi
kubectl podward why $pod
kubectl wait --for=delete pod/$pod --timeout=120s
kubectl events --for pod/$pod
";

/// A cluster that `cargo xtask testbed` has started. It ends when this is dropped.
struct Started {
    /// The path of the plugin.
    plugin: PathBuf,
}

impl Started {
    /// Runs `cargo xtask testbed` for this cluster.
    fn testbed(&self, command: &str, args: &[&str]) -> Output {
        let folder = self.plugin.parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap();
        let path = std::iter::once(folder).chain(std::env::split_paths(&path));
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(workspace_dir()).env("PATH", std::env::join_paths(path).unwrap());
        cargo.args(["xtask", "testbed", command, "--name", NAME]).args(args).output().unwrap()
    }

    /// Runs a script in the network of the cluster, and returns its output. It must succeed.
    fn shell(&self, script: &str) -> String {
        said(&self.testbed("exec", &["--", "bash", "-c", script]))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.testbed("down", &[]);
    }
}

/// Returns what a command has said. It must have succeeded.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text.into_owned()
}

#[tokio::test]
async fn the_quick_start_works() {
    let missing = preflight(&[Part::ControlPlane, Part::Node, Part::Dns, Part::Helm], true);
    assert!(missing.is_empty(), "{missing:?}");
    let started = Started { plugin: build_program("kubectl-podward", "dev").await.unwrap() };
    said(&started.testbed("up", &["--podward"]));
    let page = fs::read_to_string(workspace_dir().join("docs/quick-start.md")).unwrap();
    let (_, workload) = page.split_once("kubectl apply -f - <<'END'\n").unwrap();
    let (workload, _) = workload.split_once("\nEND\n").unwrap();
    started.shell(&format!("kubectl apply -f - <<'END'\n{workload}\nEND"));
    let said = started.shell(DELETE);
    println!("{said}");
    for words in [
        "denied the request: pod deletion process is underway",
        "(delete) waits for hook traffic-controller to release the pod",
        "\ntraffic: hook traffic-controller: has the pod",
        "PodDeletion",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
}
