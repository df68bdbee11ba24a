//! Containers that run and are not Ready, or end again and again, on a real node.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{pod, until_first_line, until_said};

/// A gate of another controller.
const GATE: &str = "example.com/load-balancer";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("why_probes_fail", probes),
        Test::node("why_a_readiness_gate_is_off", gates),
        Test::node("why_containers_crash", crashes),
    ]
}

async fn probes(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let get = |path: &str| json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "failureThreshold": 200});
    pod(&fixture, "readiness", json!({}), json!({"readinessProbe": get("/there-is-none")})).await?;
    pod(&fixture, "startup", json!({}), json!({"startupProbe": get("/there-is-none")})).await?;
    let mut liveness = get("/there-is-none");
    liveness["failureThreshold"] = json!(1);
    pod(
        &fixture,
        "liveness",
        json!({}),
        json!({"livenessProbe": liveness, "readinessProbe": get("/there-is-none")}),
    )
    .await?;
    let said = until_first_line(
        &fixture,
        "readiness",
        "the readiness probe of container server fails: HTTP probe failed with statuscode: 404",
    )
    .await?;
    let settings = "readiness probe: GET /there-is-none on port 8080, every 1 s, timeout 1 s, without traffic after 200 failures";
    ensure!(said.contains(settings), "{said}");
    until_first_line(
        &fixture,
        "startup",
        "the startup probe of container server fails: HTTP probe failed with statuscode: 404",
    )
    .await?;
    until_first_line(
        &fixture,
        "liveness",
        "the liveness probe of container server fails, and the kubelet restarts it",
    )
    .await
    .map(drop)
}

async fn gates(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let gated = json!({"readinessGates": [{"conditionType": GATE}]});
    pod(&fixture, "gated", gated, json!({})).await?;
    let never = format!(
        "the condition of its readiness gate {GATE} was never written, which an unknown controller does"
    );
    let said = until_first_line(&fixture, "gated", &never).await?;
    ensure!(said.contains("nobody has written the condition"), "{said}");
    let patch = json!({"status": {"conditions": [
        {"type": GATE, "status": "False", "reason": "Draining", "message": "in the target group"},
    ]}});
    let patch = patch.to_string();
    fixture
        .kubectl(&[
            "patch",
            "pod",
            "gated",
            "--subresource=status",
            "--patch",
            &patch,
            "--field-manager=balancer",
        ])
        .await?
        .succeeded()?;
    let off =
        format!("its readiness gate {GATE} is False, which balancer sets (Draining: in the target group)");
    let said = until_first_line(&fixture, "gated", &off).await?;
    ensure!(said.contains("last write by balancer"), "{said}");
    Ok(())
}

async fn crashes(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    pod(&fixture, "crash", json!({}), json!({"args": ["--there-is-no-such-argument"]})).await?;
    let hook = json!({"lifecycle": {"postStart": {"exec": {"command": ["/there-is-none"]}}}});
    pod(&fixture, "post-start", json!({}), hook).await?;
    let small = json!({"resources": {"limits": {"memory": "1Mi"}}});
    pod(&fixture, "memory", json!({}), small).await?;
    let log = ["last log: ", "--there-is-no-such-argument"];
    until_said(&fixture, "crash", "container server ends with exit code 1", &log).await?;
    until_first_line(&fixture, "post-start", "the postStart hook of container server fails").await?;
    until_first_line(&fixture, "memory", "the memory limit of the pod is too low for the runtime to start it")
        .await
        .map(drop)
}
