//! Pods whose sandbox cannot be made, and containers that are killed, on a real node.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::{Value, json};

use super::asked::{create, delete, pod, server, until_first_line};

/// The image of the containers that hold the namespaces of pods on the test cluster.
const BUSYBOX: &str = "podward.local/pause:1";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("why_a_sandbox_is_not_made", sandboxes),
        Test::node("why_a_container_runs_out_of_memory", out_of_memory),
    ]
}

/// Returns what a container needs that runs this script instead of the server.
pub(super) fn busybox(script: &str) -> Value {
    let script = format!("PATH=/bin; alias dd='busybox dd'; {script}");
    json!({
        "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["/bin/busybox", "sh", "-c", script],
        "readinessProbe": null,
    })
}

/// The runtime sets up the network of a sandbox, after it has looked up the runtime of its RuntimeClass.
async fn sandboxes(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    // No interface can be as slow as that.
    create(
        &fixture,
        json!({
            "apiVersion": "v1", "kind": "Pod", "spec": server(&fixture, json!({}), json!({})),
            "metadata": {"name": "network", "annotations": {"kubernetes.io/ingress-bandwidth": "1"}},
        }),
    )
    .await?;
    let class = format!("{}-none", fixture.namespace());
    let handler = "there-is-none";
    create(
        &fixture,
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": class}, "handler": handler}),
    )
    .await?;
    pod(&fixture, "runtime", json!({"runtimeClassName": class}), json!({})).await?;
    let network =
        until_first_line(&fixture, "network", "the network of the pod cannot be made on node node1: ").await;
    let words = format!("node node1 does not have the runtime {handler} of RuntimeClass {class}");
    let runtime = until_first_line(&fixture, "runtime", &words).await;
    delete(&fixture, "runtimeclass", &class).await?;
    runtime?;
    let network = network?;
    let next = "; next: kubectl -n kube-system get pods -o wide --field-selector spec.nodeName=node1";
    let first = network.lines().next().unwrap_or_default();
    ensure!(first.contains("bandwidth") && first.ends_with(next), "{network}");
    Ok(())
}

/// The container runs, and then needs more memory than it may have.
async fn out_of_memory(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let mut greedy = busybox("sleep 1; exec busybox dd if=/dev/zero of=/dev/null bs=64M count=1000");
    greedy["resources"] = json!({"limits": {"memory": "32Mi"}});
    pod(&fixture, "greedy", json!({}), greedy).await?;
    let words = "container server used more memory than its limit of 32Mi and was killed, 1 restart";
    let said = until_first_line(&fixture, "greedy", words).await?;
    let next = format!(
        "; next: kubectl -n {} describe pod greedy; raise resources.limits.memory",
        fixture.namespace()
    );
    ensure!(said.lines().next().is_some_and(|line| line.ends_with(&next)), "{said}");
    ensure!(said.contains("container server: exit code 137 (OOMKilled), 1 restart"), "{said}");
    Ok(())
}
