//! Pods that are not scheduled.

use std::sync::Arc;

use anyhow::{Result, ensure};
use podward_e2e::{Fixture, Test};
use serde_json::json;

use super::asked::{create, pod, until_first_line, until_said};
use crate::deletion::own_nodes::OwnNode;

const ZONE: &str = "topology.kubernetes.io/zone";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("why_no_node_has_room", no_room),
        Test::simulated("why_no_node_is_allowed", not_allowed),
        Test::simulated("why_is_answered_to_users_who_may_only_view", viewer),
        Test::simulated("why_claims_keep_a_pod_pending", claims),
    ]
}

async fn no_room(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "room", 2, true).await?;
    let mut here = json!({});
    node.place(&mut here);
    let wants = |resource: &str, amount: &str| json!({"resources": {"requests": {resource: amount}}});
    pod(&fixture, "fits", here.clone(), wants("cpu", "1500m")).await?;
    fixture.feed().until("fits", "it is Ready", podward_support::pods::is_ready).await?;
    pod(&fixture, "cpu", here.clone(), wants("cpu", "1")).await?;
    pod(&fixture, "memory", json!({}), wants("memory", "2Ti")).await?;
    let gpu = json!({"resources": {"limits": {"example.com/gpu": "1"}}});
    pod(&fixture, "gpu", json!({}), gpu).await?;
    let port = json!({"ports": [{"containerPort": 8080, "hostPort": 8080}]});
    pod(&fixture, "first", here.clone(), port.clone()).await?;
    fixture.feed().until("first", "it is Ready", podward_support::pods::is_ready).await?;
    pod(&fixture, "port", here, port).await?;
    for (name, words) in [
        ("cpu", "requests 1 CPU, and no node has that free; node "),
        ("memory", "requests 2097152 MiB, and the largest node has 1048576 MiB"),
        ("gpu", "requests 1 example.com/gpu, and the largest node has 0"),
        ("port", "another pod uses its host port 8080"),
    ] {
        until_first_line(&fixture, name, words).await?;
    }
    let most = format!("node {} has the most, 0.5 CPU", node.name);
    until_said(&fixture, "cpu", &most, &["event FailedScheduling"]).await?;
    let named = fixture.plugin(&["why", "-l", "app in (cpu, fits)", "-o", "name"]).await?.succeeded()?.said;
    ensure!(named == "pod/cpu\n", "{named}");
    node.remove().await
}

async fn not_allowed(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "own", 2, true).await?;
    let mut here = json!({});
    node.place(&mut here);
    let selector = json!({"nodeSelector": here["nodeSelector"]});
    pod(&fixture, "taint", selector, json!({})).await?;
    pod(&fixture, "selector", json!({"nodeSelector": {"disk": "ssd"}}), json!({})).await?;
    let terms = |key: &str, app: &str| {
        let term = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]);
        json!({key: {"requiredDuringSchedulingIgnoredDuringExecution": term}})
    };
    let mut beside = json!({"affinity": terms("podAffinity", "nobody")});
    node.place(&mut beside);
    pod(&fixture, "beside", beside, json!({})).await?;
    pod(&fixture, "there", here.clone(), json!({})).await?;
    fixture.feed().until("there", "it is Ready", podward_support::pods::is_ready).await?;
    let mut apart = json!({"affinity": terms("podAntiAffinity", "there")});
    node.place(&mut apart);
    pod(&fixture, "apart", apart, json!({})).await?;
    let mut spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "example.com/rack", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }]});
    node.place(&mut spread);
    pod(&fixture, "spread", spread, json!({})).await?;
    pod(&fixture, "gated", json!({"schedulingGates": [{"name": "example.com/quota"}]}), json!({})).await?;
    pod(&fixture, "ignored", json!({"schedulerName": "nobody"}), json!({})).await?;
    let taint = format!(
        "does not tolerate the taint podward.io/own={}:NoSchedule of node {}",
        fixture.namespace(),
        node.name
    );
    for (name, words) in [
        ("taint", taint.as_str()),
        ("selector", "no node has the label disk=ssd that its nodeSelector wants"),
        (
            "beside",
            "no node is beside pods that its required affinity wants: pods app=nobody per kubernetes.io/hostname",
        ),
        (
            "apart",
            "its required anti-affinity forbids the nodes that have room: pods app=there per kubernetes.io/hostname",
        ),
        (
            "spread",
            "its topology spread constraint forbids the nodes that have room: maxSkew 1 per example.com/rack",
        ),
        ("gated", "is not scheduled until the owner of scheduling gate example.com/quota removes it"),
        ("ignored", "no scheduler has looked at it yet (schedulerName: nobody)"),
    ] {
        until_first_line(&fixture, name, words).await?;
    }
    fixture.kubectl(&["cordon", &node.name]).await?.succeeded()?;
    pod(&fixture, "cordoned", here, json!({})).await?;
    until_first_line(&fixture, "cordoned", "1 of ").await?;
    until_first_line(&fixture, "cordoned", "cordoned").await?;
    node.remove().await
}

/// Users with the role `view` of the namespace may not read nodes.
async fn viewer(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let jane = format!("{}-jane", fixture.namespace());
    let user = format!("--user={jane}");
    fixture.kubectl(&["create", "rolebinding", "viewers", "--clusterrole=view", &user]).await?.succeeded()?;
    let wants = json!({"resources": {"requests": {"cpu": "2000"}}});
    pod(&fixture, "large", json!({}), wants).await?;
    until_first_line(&fixture, "large", "requests 2000 CPU, and the largest node has 1000 CPU").await?;
    let asked = ["why", "large", "--as", &jane];
    let said = fixture.plugin(&asked).await?.succeeded()?.said;
    let first = said.lines().next().unwrap_or_default();
    ensure!(first.contains("no node has the cpu that it requests (2000 CPU)"), "{said}");
    ensure!(said.contains("nodes could not be read: ") && said.contains("forbidden"), "{said}");
    let denied = fixture.plugin(&["why", "-l", "app=large", "--as", "nobody"]).await?;
    ensure!(denied.code == Some(1) && denied.said.contains("list pods"), "{denied:?}");
    Ok(())
}

async fn claims(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let node = OwnNode::make(&fixture, "zone", 2, true).await?;
    fixture.kubectl(&["label", "node", &node.name, &format!("{ZONE}=a")]).await?.succeeded()?;
    let volume = format!("{}-b", fixture.namespace());
    create(
        &fixture,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": volume,
                "hostPath": {"path": "/there-is-none"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]},
                ]}},
            },
        }),
    )
    .await?;
    let claim = async |name: &str, class: Option<&str>| {
        let mut spec =
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
        if let Some(class) = class {
            spec["storageClassName"] = json!(class);
        }
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec});
        create(&fixture, claim).await
    };
    claim("elsewhere", Some(&volume)).await?;
    claim("classless", None).await?;
    claim("unknown", Some("there-is-none")).await?;
    for name in ["elsewhere", "classless", "unknown", "missing"] {
        let mut spec = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]});
        node.place(&mut spec);
        pod(&fixture, name, spec, json!({})).await?;
    }
    let elsewhere =
        format!("its volume {volume} (PersistentVolumeClaim elsewhere) is in zone b, and the nodes are in a");
    for (name, words) in [
        ("elsewhere", elsewhere.as_str()),
        ("classless", "PersistentVolumeClaim classless is not bound: it names no StorageClass"),
        ("unknown", "PersistentVolumeClaim unknown is not bound: "),
        ("missing", "PersistentVolumeClaim missing does not exist"),
    ] {
        until_first_line(&fixture, name, words).await?;
    }
    fixture.kubectl(&["delete", "pv", &volume, "--wait=false"]).await?.succeeded()?;
    node.remove().await
}
