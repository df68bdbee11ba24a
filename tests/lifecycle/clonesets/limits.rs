//! Largest values, finalizers as markers, and what is changed in place or recreated.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use podward_e2e::{Fixture, Test};
use serde_json::{Value, json};

use super::made::MadeSet;

const ONLINE: &str = "example.com/online";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("cloneset_with_the_largest_numbers", largest),
        Test::simulated("cloneset_changes_environments_with_images", environment),
        Test::simulated("cloneset_recreates_what_it_cannot_change", recreated),
        Test::simulated("cloneset_of_pods_that_are_not_scheduled", not_scheduled),
    ]
}

/// New pods are confirmed by finalizers. They become Ready while the set is paused, are never available, and can be scaled
/// in.
async fn largest(fixture: Arc<Fixture>) -> Result<()> {
    let spec = json!({
        "minReadySeconds": i32::MAX, "progressDeadlineSeconds": i32::MAX,
        "updateStrategy": {"paused": true},
        "lifecycle": {"preNormal": {"finalizersHandler": [ONLINE]}},
    });
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    let pods = set.until_states(&["PreparingNormal", "PreparingNormal"]).await?;
    let write = async |name: &str, finalizers: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let patched = fixture.api().patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).context("change the finalizers of a pod")
    };
    for pod in &pods {
        write(&pod.name_any(), json!([ONLINE])).await?;
    }
    set.until_states(&["Normal", "Normal"]).await?;
    let status = set.until("all pods are Ready", |status| status.ready_replicas == 2).await?;
    ensure!(status.available_replicas == 0 && status.conditions.is_empty(), "{status:?}");
    set.patch(json!({"replicas": 1})).await?;
    set.until_states(&["Normal"]).await?;
    for pod in fixture.feed().all() {
        write(&pod.name_any(), json!([])).await?;
    }
    Ok(())
}

fn uids(fixture: &Fixture) -> BTreeSet<String> {
    fixture.feed().all().iter().filter_map(|pod| pod.uid()).collect()
}

fn with_version(fixture: &Fixture, version: &str) -> Value {
    let reference = json!({"fieldRef": {"fieldPath": "metadata.labels['version']"}});
    let container = json!({
        "name": "main", "image": fixture.images().v1, "env": [{"name": "VERSION", "valueFrom": reference}],
    });
    json!({"metadata": {"labels": {"version": version}}, "spec": {"containers": [container]}})
}

/// A label in the environment changes in place with the image, and recreates the pod without it: nothing would start the
/// container again.
async fn environment(fixture: Arc<Fixture>) -> Result<()> {
    let template = with_version(&fixture, "1");
    let set = MadeSet::create(&fixture, json!({}), json!({"template": template, "replicas": 1})).await?;
    set.until_done(1).await?;
    let before = uids(&fixture);
    let mut template = with_version(&fixture, "2");
    template["spec"]["containers"][0]["image"] = json!(fixture.images().v2);
    set.patch(json!({"template": template})).await?;
    set.until_done(1).await?;
    let pod = fixture.feed().all().first().context("no pod")?.clone();
    ensure!(uids(&fixture) == before, "the pod was recreated");
    ensure!(pod.labels().get("version").is_some_and(|it| it == "2"), "{:?}", pod.labels());
    set.patch(json!({"template": {"metadata": {"labels": {"version": "3"}}}})).await?;
    set.until_done(1).await?;
    ensure!(
        uids(&fixture) != before,
        "the pod was changed in place, and its container has the old environment"
    );
    Ok(())
}

/// Another command is no change in place.
async fn recreated(fixture: Arc<Fixture>) -> Result<()> {
    let strategy = json!({"type": "InPlaceOnly"});
    let set =
        MadeSet::create(&fixture, json!({}), json!({"replicas": 1, "updateStrategy": strategy})).await?;
    set.until_done(1).await?;
    let before = uids(&fixture);
    set.patch(json!({"template": {"spec": {"terminationGracePeriodSeconds": 7}}})).await?;
    let status = set
        .until("it says why it does not update", |status| {
            status
                .conditions
                .iter()
                .any(|it| it.type_ == "FailedUpdate" && it.message.contains("InPlaceOnly"))
        })
        .await?;
    ensure!(status.updated_replicas == 0 && uids(&fixture) == before, "{status:?}");
    set.patch(json!({"updateStrategy": {"type": "InPlaceIfPossible"}})).await?;
    let status = set.until_done(1).await?;
    ensure!(status.conditions.is_empty() && uids(&fixture) != before, "{status:?}");
    Ok(())
}

/// Pods in the network of their node, with a port that names no port of the node, and for a scheduler that does not exist.
async fn not_scheduled(fixture: Arc<Fixture>) -> Result<()> {
    let pod = json!({"spec": {"hostNetwork": true, "schedulerName": "nobody"}});
    let set = MadeSet::create(&fixture, json!({}), json!({"template": pod, "replicas": 1})).await?;
    let pods = set.until_states(&["PreparingNormal"]).await?;
    let spec = pods.first().and_then(|pod| pod.spec.as_ref()).context("there is no pod")?;
    let port = spec.containers.first().and_then(|it| it.ports.as_ref()?.first()).context("it has no port")?;
    ensure!(spec.node_name.is_none() && port.host_port == Some(port.container_port), "{spec:?}");
    // It has no container that could run: it gets another image at once.
    set.update(&fixture.images().v2).await?;
    set.until("the pod is updated", |status| status.updated_replicas == 1).await?;
    let before = uids(&fixture);
    ensure!(pods.iter().filter_map(|pod| pod.uid()).eq(before.iter().cloned()), "the pod was recreated");
    set.patch(json!({"template": {"spec": {"schedulerName": null}}})).await?;
    set.until_done(1).await?;
    ensure!(uids(&fixture) != before, "the pod has another scheduler, and was not recreated");
    Ok(())
}
