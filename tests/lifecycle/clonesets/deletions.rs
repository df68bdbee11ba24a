//! Deletions of pods of CloneSets.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, PostParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_core::cloneset::keys::{DELETE_HOLD, INSTANCE_ID, SPECIFIED_DELETE};
use podward_core::deletion::hold::BUDGET_REFUSAL;
use podward_core::{ConditionStatus, keys};
use podward_e2e::{Fixture, Test};
use podward_support::{TrafficBehaviour, pods};
use serde_json::json;

use super::made::{MadeSet, hooks};
use super::watched_objects::until_objects;
use crate::deletion::objects::is_delete_requested;
use podward_support::markers::{BLOCKS_DELETE, MarkerOperator, answer};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("cloneset_scale_in_waits_for_its_hook", scale_in),
        Test::simulated("cloneset_replaces_chosen_pods", chosen),
        Test::simulated("cloneset_claims_follow_their_pods", claims),
        Test::simulated("cloneset_deletes_of_opted_in_pods_are_held", held),
        Test::simulated("cloneset_deletes_by_others_run_the_hook", by_others),
        Test::simulated(
            "cloneset_deletes_of_pods_that_are_not_opted_in_run_the_hook",
            by_others_not_opted_in,
        ),
    ]
}

async fn scale_in(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 3})).await?;
    let _operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal"]);
    set.until_done(3).await?;
    set.patch(json!({"replicas": 2})).await?;
    set.until_states(&["Normal", "Normal", "PreparingDelete"]).await?;
    // One more: the pod that nobody releases blocks no other.
    set.patch(json!({"replicas": 1})).await?;
    let pods = set.until_states(&["Normal", "PreparingDelete", "PreparingDelete"]).await?;
    // Both are cancelled.
    set.patch(json!({"replicas": 3})).await?;
    set.until_done(3).await?;
    let uids = |pods: &[Arc<Pod>]| -> BTreeSet<String> { pods.iter().filter_map(|pod| pod.uid()).collect() };
    let (before, after) = (uids(&pods), uids(&fixture.feed().all()));
    ensure!(before == after, "pods were replaced: {before:?} and {after:?}");

    set.patch(json!({"replicas": 2})).await?;
    let pods = set.until_states(&["Normal", "Normal", "PreparingDelete"]).await?;
    for pod in &pods {
        answer(&fixture.api(), pod).await?;
    }
    set.until_states(&["Normal", "Normal"]).await?;
    set.until_done(2).await?;
    Ok(())
}

/// By the label, and by the list in the spec.
async fn chosen(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 3})).await?;
    let _operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal", "PreparingDelete"]);
    set.until_done(3).await?;
    let names: Vec<String> = fixture.feed().all().iter().map(|pod| pod.name_any()).collect();
    let [first, second, third] = &names[..] else { anyhow::bail!("{names:?}") };
    fixture.label(first, &[(SPECIFIED_DELETE, Some("true"))]).await?;
    let gone = |name: &str| {
        let name = name.to_owned();
        move |pods: &[&Pod]| !pods.iter().any(|pod| pod.name_any() == name)
    };
    fixture.feed().until_pods("the first pod is gone", gone(first)).await?;
    set.until_done(3).await?;
    set.patch(json!({"replicas": 2, "scaleStrategy": {"podsToDelete": [second]}})).await?;
    fixture.feed().until_pods("the second pod is gone", gone(second)).await?;
    set.until_done(2).await?;
    ensure!(fixture.feed().get(third).is_some(), "the third pod is gone");
    let is_empty = |set: &CloneSet| set.spec.scale_strategy.pods_to_delete.is_empty();
    set.until_set("the name of the deleted pod leaves the spec", is_empty).await.map(drop)
}

async fn claims(fixture: Arc<Fixture>) -> Result<()> {
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "storageClassName": "none"},
    });
    // Nothing binds the claims, and the pods need not run.
    let set =
        MadeSet::create(&fixture, json!({}), json!({"replicas": 2, "volumeClaimTemplates": [claim]})).await?;
    let pods = fixture.feed().until_pods("there are two", |pods| pods.len() == 2).await?;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client(), fixture.namespace());
    let until = async |wanted: Vec<String>| {
        let ids = |claims: &[Arc<PersistentVolumeClaim>]| {
            let kept = claims.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
            let mut ids: Vec<String> = kept.filter_map(|it| it.labels().get(INSTANCE_ID).cloned()).collect();
            ids.sort();
            ids
        };
        until_objects(api.clone(), &format!("claims of {wanted:?}"), |claims| ids(claims) == wanted).await
    };
    let id = |pod: &Arc<Pod>| pod.labels().get(INSTANCE_ID).cloned();
    let mut wanted: Vec<String> = pods.iter().filter_map(id).collect();
    wanted.sort();
    until(wanted).await?;
    set.patch(json!({"replicas": 1})).await?;
    let left = fixture.feed().until_pods("there is one", |pods| pods.len() == 1).await?;
    until(left.iter().filter_map(id).collect()).await.map(drop)
}

/// The deletion of a pod that has opted in waits for its consumers.
async fn held(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    let set = MadeSet::create(&fixture, json!({keys::CONTROL_LABEL: "true"}), json!({"replicas": 2}));
    let set = set.await?;
    set.until_done(2).await?;
    let are_held = |pods: &[&Pod]| {
        pods.len() == 2 && pods.iter().all(|pod| pods::holders(pod).any(|it| it == traffic.finalizer()))
    };
    fixture.feed().until_pods("the consumer holds both", are_held).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    set.patch(json!({"replicas": 1})).await?;
    let waits = |pod: &Pod| {
        is_delete_requested(pod)
            && pods::condition(pod, keys::SERVICE_READY_GATE) == Some(ConditionStatus::False)
    };
    let any_waits = |pods: &[&Pod]| pods.iter().any(|pod| waits(pod));
    let seen = fixture.feed().until_pods("one is out of service, to be deleted", any_waits).await?;
    let name = seen.iter().find(|pod| waits(pod)).context("no pod waits")?.name_any();
    // Each of these writes triggers the controllers.
    for round in 0..20 {
        fixture.patch(&name, json!({"metadata": {"annotations": {"round": round.to_string()}}})).await?;
    }
    fixture.timeline().catch_up().await?;
    let pods = fixture.feed().all();
    let is_there = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
    ensure!(pods.len() == 2 && pods.iter().all(is_there), "a pod was deleted although it is held: {pods:?}");
    ensure!(traffic.sends_traffic_to(&name), "the consumer was to hold the pod");
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    fixture.feed().until_pods("one is left", |pods| pods.len() == 1).await?;
    set.until_done(1).await?;
    drop(traffic);
    fixture.timeline().verify(true).await.map(drop)
}

/// Somebody deletes a pod that has opted in: its operator is asked first, and the pod serves until it has answered.
async fn by_others(fixture: Arc<Fixture>) -> Result<()> {
    let labels = json!({keys::CONTROL_LABEL: "true"});
    let set = MadeSet::create(&fixture, labels, json!({"lifecycle": hooks(), "replicas": 1})).await?;
    let operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal"]);
    set.until_done(1).await?;
    drop(operator);
    let pod = fixture.feed().all().first().context("no pod")?.name_any();
    let held = fixture.kubectl(&["delete", "pod", &pod, "--wait=false"]).await?;
    ensure!(held.code != Some(0), "the delete was not held: {held:?}");
    let waiting = set.until_states(&["PreparingDelete"]).await?.remove(0);
    let says = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let message = conditions
            .filter(|it| it.type_ == keys::LIFECYCLE_CONDITION)
            .filter_map(|it| it.message.as_ref());
        message.into_iter().any(|it| {
            it.contains(
                "the hook preDelete of CloneSet web has to release the pod: its operator removes the label",
            )
        })
    };
    fixture.feed().until(&pod, "its condition names the hook", says).await?;
    ensure!(pods::is_ready(&waiting), "the pod left service before its operator answered");
    answer(&fixture.api(), &waiting).await?;
    let gone = |pods: &[&Pod]| !pods.iter().any(|it| it.name_any() == pod);
    fixture.feed().until_pods("the pod is gone", gone).await?;
    let _operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal"]);
    set.until_done(1).await.map(drop)
}

/// Somebody deletes or evicts a pod that has not opted in: its set moves it to PreparingDelete, and deletes it when its
/// operator has answered.
async fn by_others_not_opted_in(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 2})).await?;
    let operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal"]);
    set.until_done(2).await?;
    let is_held = |pods: &[&Pod]| pods.iter().all(|pod| pod.annotations().contains_key(DELETE_HOLD));
    fixture.feed().until_pods("the hold is on the pods", is_held).await?;
    let names: Vec<String> = fixture.feed().all().iter().map(|pod| pod.name_any()).collect();
    let [first, second] = &names[..] else { anyhow::bail!("{names:?}") };

    let held = fixture.kubectl(&["delete", "pod", first, "--wait=false"]).await?;
    let text = format!(
        "pod {namespace}/{first} is deleted by CloneSet web, and not before this: the hook preDelete of CloneSet web has to \
         release the pod: its operator removes the label {BLOCKS_DELETE}=true; to cancel: kubectl label pod {first} -n \
         {namespace} {SPECIFIED_DELETE}-",
        namespace = fixture.namespace(),
    );
    ensure!(held.code != Some(0) && held.said.contains(&text), "the delete was not held: {held:?}");
    let waiting = set.until_states(&["Normal", "PreparingDelete"]).await?;
    // Cancelled: it returns.
    fixture.kubectl(&["label", "pod", first, &format!("{SPECIFIED_DELETE}-")]).await?;
    set.until_done(2).await?;

    fixture.kubectl(&["delete", "pod", first, "--wait=false"]).await?;
    set.until_states(&["Normal", "PreparingDelete"]).await?;
    let waiting = waiting.iter().find(|pod| pod.name_any() == *first).context("the pod is gone")?;
    answer(&fixture.api(), waiting).await?;
    let gone = |name: &str| {
        let name = name.to_owned();
        move |pods: &[&Pod]| !pods.iter().any(|it| it.name_any() == name)
    };
    fixture.feed().until_pods("the deleted pod is gone", gone(first)).await?;
    set.until_done(2).await?;

    // A disruption budget without room refuses the eviction, and nothing begins.
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(fixture.client(), fixture.namespace());
    let budget = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    budgets.create(&PostParams::default(), &budget).await.context("create a budget")?;
    let answered = evict(&fixture, second).await;
    ensure!(answered.contains(BUDGET_REFUSAL), "the eviction was not refused: {answered}");
    let is_chosen = |pod: Arc<Pod>| pod.labels().contains_key(SPECIFIED_DELETE);
    ensure!(!fixture.feed().get(second).is_some_and(is_chosen), "the refused eviction has an effect");
    budgets.delete("web", &DeleteParams::default()).await.context("delete the budget")?;
    let answered = evict(&fixture, second).await;
    ensure!(answered.contains("is deleted by CloneSet web"), "the eviction was not held: {answered}");
    let waiting = set.until_states(&["Normal", "PreparingDelete"]).await?;
    let waiting = waiting.iter().find(|pod| pod.name_any() == *second).context("the pod is gone")?;
    answer(&fixture.api(), waiting).await?;
    fixture.feed().until_pods("the evicted pod is gone", gone(second)).await?;
    set.until_done(2).await?;
    drop(operator);
    Ok(())
}

/// Evicts a pod, and returns why it was refused.
async fn evict(fixture: &Fixture, name: &str) -> String {
    let evicted = fixture.api().evict(name, &EvictParams::default()).await;
    evicted.map_or_else(|error| error.to_string(), |_| String::new())
}
