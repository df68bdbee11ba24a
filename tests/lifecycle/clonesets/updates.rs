//! Updates of CloneSets.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::cloneset::keys::{POD_READY, UPDATE_READY};
use podward_core::trace::trace_of;
use podward_core::{ConditionStatus, keys};
use podward_e2e::{Collected, Fixture, Test};
use podward_support::{WAIT, pods, within};
use serde_json::json;

use super::made::{MadeSet, hooks};
use podward_support::markers::{ASKING, BLOCKS_UPDATE, MarkerOperator, States, answer};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("cloneset_updates_in_place", in_place),
        Test::simulated("cloneset_recreates_with_a_surge", recreate),
        Test::simulated("cloneset_reverted_update_returns", reverted),
        Test::simulated("cloneset_partition_and_pause", partition),
        Test::simulated("cloneset_updates_with_an_operation", operation),
    ]
}

/// As in the articles about the protocol: two replicas, and an operator that answers with labels.
async fn in_place(fixture: Arc<Fixture>) -> Result<()> {
    let (states, _watch) = States::record(fixture.client(), fixture.namespace()).await?;
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks()})).await?;
    set.until_states(&["PreparingNormal", "PreparingNormal"]).await?;
    let _operator = MarkerOperator::start(fixture.feed(), ASKING);
    set.until_done(2).await?;
    let before: BTreeSet<String> = fixture.feed().all().iter().filter_map(|pod| pod.uid()).collect();

    set.update(&fixture.images().v2).await?;
    let status = set.until_done(2).await?;
    ensure!(status.current_revision == status.update_revision, "{status:?}");
    let pods = fixture.feed().all();
    let after: BTreeSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
    ensure!(before == after, "the pods were recreated: {before:?} and {after:?}");
    let expected = ["PreparingNormal", "Normal", "PreparingUpdate", "Updating", "Updated", "Normal"];
    for pod in &pods {
        let container = pods::container(pod).context("a pod without a container")?;
        ensure!(container.image == fixture.images().v2 && container.restart_count == 1, "{container:?}");
        ensure!(states.all().get(&pod.name_any()).is_some_and(|it| it == &expected), "{:?}", states.all());
    }
    spans(&fixture, &set, status.update_revision.as_deref().unwrap_or_default()).await
}

/// Each state of the update of each pod is a span, and they follow each other.
async fn spans(fixture: &Fixture, set: &MadeSet, revision: &str) -> Result<()> {
    let uid = set.get().await?.uid().unwrap_or_default();
    let all = |spans: &[Collected]| spans.len() >= 6;
    let collected = fixture.collector()?.until(trace_of(&uid, revision).0, all);
    let found = within(WAIT, || "the spans of the update".to_owned(), collected).await?;
    for pod in fixture.feed().all() {
        let mut spans: Vec<&Collected> =
            found.iter().filter(|span| span.attribute("k8s.pod.name") == pod.name_any()).collect();
        spans.sort_by_key(|span| span.span.start_time_unix_nano);
        let steps: Vec<(&str, &str)> =
            spans.iter().map(|it| (&*it.span.name, it.attribute("podward.cloneset.next"))).collect();
        let expected = [("PreparingUpdate", "Updating"), ("Updating", "Updated"), ("Updated", "Normal")];
        ensure!(steps == expected, "{steps:?}");
        let follow = spans.windows(2).all(|pair| match pair {
            [one, next] => one.span.end_time_unix_nano <= next.span.start_time_unix_nano,
            _ => true,
        });
        ensure!(follow, "{spans:?}");
    }
    Ok(())
}

async fn recreate(fixture: Arc<Fixture>) -> Result<()> {
    let strategy = json!({"type": "ReCreate", "maxSurge": 1, "maxUnavailable": 0});
    let spec = json!({"lifecycle": hooks(), "updateStrategy": strategy});
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    let operator = MarkerOperator::start(fixture.feed(), ASKING);
    set.until_done(2).await?;
    drop(operator);
    let before: BTreeSet<String> = fixture.feed().all().iter().filter_map(|pod| pod.uid()).collect();
    set.update(&fixture.images().v2).await?;
    // The new pod is Ready, and not available: nobody has confirmed it.
    let pods = set.until_states(&["Normal", "Normal", "PreparingNormal"]).await?;
    let new = pods.iter().find(|pod| pod.uid().is_none_or(|uid| !before.contains(&uid)));
    let new = new.context("no new pod")?.name_any();
    fixture.feed().until(&new, "it is Ready", pods::is_ready).await?;
    set.until("it is not available", |status| (status.ready_replicas, status.available_replicas) == (3, 2))
        .await?;
    let _operator = MarkerOperator::start(fixture.feed(), ASKING);
    set.until_done(2).await?;
    // The status does not count pods that are ending.
    let is_old = |pod: &&Pod| pod.uid().is_some_and(|uid| before.contains(&uid));
    let recreated = |pods: &[&Pod]| !pods.iter().any(is_old);
    fixture.feed().until_pods("all pods are recreated", recreated).await.map(drop)
}

/// The template is reverted while a pod waits for its hook, and after the hook has released it.
async fn reverted(fixture: Arc<Fixture>) -> Result<()> {
    let mut hooks = hooks();
    hooks["inPlaceUpdate"]["markPodNotReady"] = json!(true);
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks, "replicas": 1})).await?;
    let _operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal", "Updated"]);
    set.until_done(1).await?;

    set.update(&fixture.images().v2).await?;
    let pod = set.until_states(&["PreparingUpdate"]).await?.remove(0);
    let is_marked =
        |pod: &Pod| pods::condition(pod, POD_READY) == Some(ConditionStatus::False) && !pods::is_ready(pod);
    fixture.feed().until(&pod.name_any(), "it is marked not Ready", is_marked).await?;
    set.update(&fixture.images().v1).await?;
    set.until_done(1).await?;
    // The watch of pods may be behind, and still show the state of the first update.
    set.until_states(&["Normal"]).await?;

    set.update(&fixture.images().v2).await?;
    let waiting = set.until_states(&["PreparingUpdate"]).await?.remove(0);
    set.patch(json!({"updateStrategy": {"paused": true}})).await?;
    // Pods and sets have watches of their own, so the controller could learn of the answer before the pause.
    set.until("it is paused", |status| status.expected_updated_replicas == 1).await?;
    answer(&fixture.api(), &waiting).await?;
    fixture
        .feed()
        .until(&pod.name_any(), "it is released", |pod| !pods::has_label(pod, BLOCKS_UPDATE))
        .await?;
    set.update(&fixture.images().v1).await?;
    set.patch(json!({"updateStrategy": {"paused": false}})).await?;
    set.until_done(1).await?;
    let found = fixture.feed().get(&pod.name_any()).context("the pod is gone")?;
    ensure!(found.uid() == pod.uid() && pods::is_ready(&found), "{}", pods::describe(&found));
    ensure!(pods::has_label(&found, BLOCKS_UPDATE), "nobody has confirmed the pod");
    let container = pods::container(&found).context("a pod without a container")?;
    ensure!(container.restart_count == 0, "the container was replaced");
    Ok(())
}

async fn partition(fixture: Arc<Fixture>) -> Result<()> {
    let spec = json!({"replicas": 4, "updateStrategy": {"partition": "99%", "maxUnavailable": "100%"}});
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    set.until_done(4).await?;
    set.update(&fixture.images().v2).await?;
    let updated = |count: i32| {
        move |status: &podward_api::clone_set::CloneSetStatus| {
            (status.updated_available_replicas, status.available_replicas, status.expected_updated_replicas)
                == (count, 4, count)
        }
    };
    set.until("one of four pods is updated", updated(1)).await?;
    set.patch(json!({"updateStrategy": {"paused": true}})).await?;
    let images = || -> BTreeSet<(Option<String>, Option<String>)> {
        let image = |pod: &Pod| pod.spec.as_ref()?.containers.first()?.image.clone();
        fixture.feed().all().iter().map(|pod| (pod.uid(), image(pod))).collect()
    };
    let before = images();
    set.patch(json!({"updateStrategy": {"partition": 0}})).await?;
    set.until("it is paused", |status| status.expected_updated_replicas == 4).await?;
    // A status is written after the plan is carried out, and counts pods as they were before. So the next one counts what a
    // set that is not paused would have changed.
    set.patch(json!({"revisionHistoryLimit": 9})).await?;
    let status = set.until("the next plan is carried out", |_| true).await?;
    let after = images();
    ensure!(before.len() == 4 && before == after, "changed although it is paused: {before:?} and {after:?}");
    ensure!(status.updated_replicas == 1, "{status:?}");
    set.patch(json!({"updateStrategy": {"paused": false}})).await?;
    set.until("all pods are updated", updated(4)).await?;
    Ok(())
}

/// A pod that has opted in is changed while Podward keeps it out of service.
async fn operation(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({keys::CONTROL_LABEL: "true"}), json!({"replicas": 2})).await?;
    set.until_done(2).await?;
    let before: BTreeSet<String> = fixture.feed().all().iter().filter_map(|pod| pod.uid()).collect();
    set.update(&fixture.images().v2).await?;
    set.until_done(2).await?;
    let report = fixture.timeline().verify(true).await?;
    ensure!(report.violations.is_empty(), "{:?}", report.violations);
    for pod in fixture.feed().all() {
        ensure!(pod.uid().is_some_and(|uid| before.contains(&uid)), "{} was recreated", pod.name_any());
        let history = report.pods.iter().find(|it| it.name == pod.name_any()).context("no report")?;
        let ids: Vec<&str> = history.operations.iter().map(|operation| &*operation.id).collect();
        ensure!(ids == ["cloneset-update"], "{ids:?}");
        ensure!(
            pods::condition(&pod, UPDATE_READY) == Some(ConditionStatus::True),
            "{}",
            pods::describe(&pod)
        );
    }
    Ok(())
}
