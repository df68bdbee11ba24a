//! What CloneSets do beside updates and deletions.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, WAIT, within};
use serde_json::json;

use super::made::{MadeSet, hooks};
use super::watched_objects::until_objects;
use podward_support::markers::{ASKING, MarkerOperator};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("cloneset_scales_with_kubectl", kubectl),
        Test::simulated("cloneset_scales_with_an_autoscaler", autoscaler),
        Test::simulated("cloneset_adopts_and_gives_up_pods", adoption),
        Test::simulated("cloneset_keeps_some_revisions", history),
        Test::simulated("cloneset_that_is_invalid_is_rejected", invalid),
        Test::simulated_alone("cloneset_is_left_to_openkruise", left),
        Test::simulated_alone("cloneset_leader_killed_in_each_state", leader_killed),
    ]
}

async fn kubectl(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"replicas": 1})).await?;
    set.until_done(1).await?;
    fixture.kubectl(&["scale", "clone/web", "--replicas=3"]).await?.succeeded()?;
    let status = set.until_done(3).await?;
    ensure!(status.label_selector.as_deref() == Some("app=web"), "{status:?}");
    let shown = fixture.kubectl(&["get", "clone", "web"]).await?.succeeded()?;
    ensure!(shown.said.contains("UPDATED_AVAILABLE"), "{shown:?}");
    Ok(())
}

/// The set is deleted without its pods, and created again; later, a pod gets other labels.
async fn adoption(fixture: Arc<Fixture>) -> Result<()> {
    let uids = || -> BTreeSet<String> { fixture.feed().all().iter().filter_map(|pod| pod.uid()).collect() };
    let set = MadeSet::create(&fixture, json!({}), json!({})).await?;
    let first = set.until_done(2).await?;
    let before = uids();
    fixture.kubectl(&["delete", "clone/web", "--cascade=orphan"]).await?.succeeded()?;
    let set = MadeSet::create(&fixture, json!({}), json!({})).await?;
    let status = set.until_done(2).await?;
    ensure!(uids() == before, "pods were replaced");
    ensure!(status.update_revision == first.update_revision, "{status:?} and {first:?}");

    let pod = fixture.feed().all().first().context("no pod")?.name_any();
    fixture.label(&pod, &[("app", Some("quarantine"))]).await?;
    let is_free = |pod: &Pod| pod.owner_references().is_empty();
    fixture.feed().until(&pod, "nothing controls it", is_free).await?;
    let is_replaced = |pods: &[&Pod]| pods.len() == 3;
    fixture.feed().until_pods("it is replaced", is_replaced).await?;
    set.until_done(2).await?;
    ensure!(fixture.feed().get(&pod).is_some(), "the pod that was taken away is gone");
    Ok(())
}

/// Without metrics, an autoscaler creates the least number of pods that it may.
async fn autoscaler(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"replicas": 1})).await?;
    let target = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web"});
    let autoscaler = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5},
    }))
    .context("describe an autoscaler")?;
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(fixture.client(), fixture.namespace());
    api.create(&PostParams::default(), &autoscaler).await.context("create an autoscaler")?;
    set.until_done(3).await.map(drop)
}

/// OpenKruise is installed later, and removed again.
async fn left(fixture: Arc<Fixture>) -> Result<()> {
    let resource = json!({
        "metadata": {"name": "sidecarsets.apps.kruise.io"},
        "spec": {
            "group": "apps.kruise.io", "scope": "Cluster",
            "names": {"kind": "SidecarSet", "plural": "sidecarsets"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let resource: CustomResourceDefinition =
        serde_json::from_value(resource).context("describe a definition of OpenKruise")?;
    let definitions: Api<CustomResourceDefinition> = Api::all(fixture.client());
    let created = definitions.create(&PostParams::default(), &resource).await;
    created.context("create a definition of OpenKruise")?;
    let _operator = MarkerOperator::start(fixture.feed(), ASKING);
    let works = async |count: usize| {
        let read = async {
            loop {
                let mut leaders = 0;
                for service in fixture.podward()?.services(ServiceKind::ClonesetController) {
                    let metrics = service.metrics().await?;
                    leaders += usize::from(metrics.lines().any(|line| line == "podward_cloneset_leader 1"));
                }
                if leaders == count {
                    return Ok(());
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        within(WAIT, || format!("{count} cloneset-controllers that work"), read).await
    };
    let result = async {
        works(0).await?;
        let set = MadeSet::create(&fixture, json!({}), json!({"replicas": 1})).await?;
        // A controller that works creates a pod within some milliseconds.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        ensure!(fixture.feed().all().is_empty(), "a pod was created although OpenKruise is installed");
        ensure!(set.get().await?.status.is_none(), "the status was written although OpenKruise is installed");
        Ok(set)
    }
    .await;
    let name = resource.name_any();
    definitions.delete(&name, &DeleteParams::default()).await.context("delete a definition of OpenKruise")?;
    let set = result?;
    works(1).await?;
    set.until_done(1).await.map(drop)
}

async fn history(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"replicas": 1, "revisionHistoryLimit": 1})).await?;
    let first = set.until_done(1).await?.update_revision.context("no revision")?;
    for value in ["a", "b", "c"] {
        set.patch(json!({"template": {"metadata": {"labels": {"revision": value}}}})).await?;
        set.until_done(1).await?;
    }
    let api: Api<ControllerRevision> = Api::namespaced(fixture.client(), fixture.namespace());
    let two = until_objects(api, "two revisions", |revisions| revisions.len() == 2).await?;
    let names: Vec<String> = two.iter().map(|revision| revision.name_any()).collect();
    ensure!(!names.contains(&first), "{names:?} contain the oldest revision {first}");
    let before = set.get().await?.status.and_then(|status| status.update_revision);
    set.patch(json!({"template": {"metadata": {"labels": {"revision": "b"}}}})).await?;
    let reverted = set.until_done(1).await?.update_revision;
    ensure!(
        reverted != before && reverted.is_some_and(|name| names.contains(&name)),
        "a reverted template has a new revision"
    );
    Ok(())
}

async fn invalid(fixture: Arc<Fixture>) -> Result<()> {
    let mut hooks = hooks();
    hooks["preDelete"] = json!({"markPodNotReady": true});
    let refused = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks})).await.err();
    let words = format!("{:#}", refused.context("a hook that waits for nothing was accepted")?);
    ensure!(words.contains("markPodNotReady has no effect without a marker"), "{words}");
    let both = json!({"updateStrategy": {"maxUnavailable": 0, "maxSurge": 0}});
    let refused = MadeSet::create(&fixture, json!({}), both).await.err();
    let words = format!("{:#}", refused.context("a set that cannot be updated was accepted")?);
    ensure!(words.contains("must not both be 0"), "{words}");
    for (template, problem) in [
        (
            json!({"metadata": {"labels": null}}),
            "the template must have the labels in spec.selector.matchLabels",
        ),
        (json!({"spec": {"restartPolicy": "Never"}}), "spec.template.spec.restartPolicy: Invalid value"),
        (json!({"spec": {"activeDeadlineSeconds": 60}}), "the pods run until they are deleted"),
    ] {
        let refused =
            MadeSet::create(&fixture, json!({}), json!({"replicas": 0, "template": &template})).await.err();
        let words = format!("{:#}", refused.with_context(|| format!("{template} was accepted"))?);
        ensure!(words.contains(problem), "{template}: {words}");
    }
    Ok(())
}

/// The leader is killed while a pod is in each of the states, and the next one goes on.
async fn leader_killed(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 1})).await?;
    let kill = async || -> Result<()> {
        let leader = async {
            loop {
                if let Some(leader) = fixture.podward()?.cloneset_leader().await? {
                    return Ok(leader);
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        let leader = within(WAIT, || "a cloneset-controller that leads".to_owned(), leader).await?;
        leader.kill().await?;
        leader.start().await
    };
    let answer = |state: &'static [&'static str]| MarkerOperator::start(fixture.feed(), state);
    set.until_states(&["PreparingNormal"]).await?;
    kill().await?;
    drop({
        let operator = answer(&["PreparingNormal"]);
        set.until_states(&["Normal"]).await?;
        operator
    });
    kill().await?;
    set.update(&fixture.images().v2).await?;
    set.until_states(&["PreparingUpdate"]).await?;
    kill().await?;
    drop({
        let operator = answer(&["PreparingUpdate"]);
        set.until_states(&["Updated"]).await?;
        operator
    });
    kill().await?;
    drop({
        let operator = answer(&["Updated"]);
        set.until_states(&["Normal"]).await?;
        operator
    });
    set.patch(json!({"replicas": 0})).await?;
    set.until_states(&["PreparingDelete"]).await?;
    kill().await?;
    let _operator = answer(ASKING);
    set.until_states(&[]).await?;
    set.until_done(0).await.map(drop)
}
