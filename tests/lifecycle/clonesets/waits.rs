//! Deadlines of hooks and updates, and hooks that hold traffic.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_api::clone_set::{CloneSetCondition, CloneSetStatus};
use podward_core::ConditionStatus;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use serde_json::json;

use super::made::{MadeSet, hooks};
use podward_support::markers::{MarkerOperator, answer};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("cloneset_hook_passes_its_deadline", deadline),
        Test::simulated("cloneset_hooks_hold_traffic", traffic),
        Test::simulated("cloneset_update_passes_its_deadline", progress),
    ]
}

fn condition<'a>(status: &'a CloneSetStatus, kind: &str) -> Option<&'a CloneSetCondition> {
    status.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Without an operator: pods wait and the set says so, or they go on.
async fn deadline(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 1})).await?;
    let pod = set.until_states(&["PreparingNormal"]).await?.remove(0).name_any();
    let why = fixture.plugin(&["why", "cloneset/web"]).await?.succeeded()?.said;
    let expected = format!(
        "cloneset {}/web: 1 pod waits for the hook preNormal to set label newly-create=true, pod {pod} the longest (",
        fixture.namespace()
    );
    ensure!(why.starts_with(&expected), "{expected} is not at the begin of {why}");
    set.options(&json!({"preNormal": {"deadlineSeconds": 1}})).await?;
    let kind = CloneSetCondition::HOOK_PAST_DEADLINE;
    let status = set.until("a hook is late", |status| condition(status, kind).is_some()).await?;
    let message = &condition(&status, kind).context("no condition")?.message;
    ensure!(message.ends_with("until its operator adds newly-create=true"), "{message}");
    let event = fixture.until_event("web", kind).await?;
    ensure!(event == *message, "{event}");

    set.options(&json!({"preNormal": {"deadline": 1}})).await?;
    let is_invalid = |status: &CloneSetStatus| {
        condition(status, CloneSetCondition::FAILED_UPDATE).is_some_and(|found| {
            found.reason == "Invalid" && found.message.contains("unknown field `deadline`")
        })
    };
    set.until("it says that it is invalid", is_invalid).await?;

    let proceeds = json!({"deadlineSeconds": 1, "deadlinePolicy": "Proceed"});
    set.options(&json!({"preNormal": proceeds, "inPlaceUpdate": proceeds, "preDelete": proceeds})).await?;
    let status = set.until_done(1).await?;
    ensure!(status.conditions.is_empty(), "{status:?}");
    let pod = fixture.feed().all().first().context("no pod")?.name_any();
    set.update(&fixture.images().v2).await?;
    set.until_done(1).await?;
    let event = fixture.until_event(&pod, "Updating").await?;
    ensure!(event.ends_with("without the hook inPlaceUpdate: its deadline has passed"), "{event}");
    set.patch(json!({"replicas": 0})).await?;
    set.until_done(0).await.map(drop)
}

/// A new pod and an updated pod are not Ready until their operator has confirmed them.
async fn traffic(fixture: Arc<Fixture>) -> Result<()> {
    let set = MadeSet::create(&fixture, json!({}), json!({"lifecycle": hooks(), "replicas": 0})).await?;
    set.options(&json!({"preNormal": {"holdTraffic": true}, "inPlaceUpdate": {"holdTraffic": true}})).await?;
    set.patch(json!({"replicas": 1})).await?;
    let runs_unready = |pod: &Pod| {
        pods::condition(pod, "ContainersReady") == Some(ConditionStatus::True)
            && pods::condition(pod, "Ready") == Some(ConditionStatus::False)
    };
    let new = set.until_states(&["PreparingNormal"]).await?.remove(0);
    let name = new.name_any();
    let new = fixture.feed().until(&name, "it runs and is not Ready", runs_unready).await?;
    answer(&fixture.api(), &new).await?;
    set.until_done(1).await?;

    let _operator = MarkerOperator::start(fixture.feed(), &["PreparingUpdate"]);
    set.update(&fixture.images().v2).await?;
    set.until_states(&["Updated"]).await?;
    let updated = fixture.feed().until(&name, "it runs and is not Ready", runs_unready).await?;
    answer(&fixture.api(), &updated).await?;
    set.until_done(1).await.map(drop)
}

/// The condition says that an update does not go on, and that it has ended.
async fn progress(fixture: Arc<Fixture>) -> Result<()> {
    let spec =
        json!({"lifecycle": hooks(), "replicas": 1, "progressDeadlineSeconds": 1, "minReadySeconds": 0});
    let set = MadeSet::create(&fixture, json!({}), spec).await?;
    let progressing = |reason: &'static str| {
        move |status: &CloneSetStatus| {
            condition(status, CloneSetCondition::PROGRESSING).is_some_and(|found| found.reason == reason)
        }
    };
    let status = set.until("it is late", progressing(CloneSetCondition::DEADLINE_EXCEEDED)).await?;
    let found = condition(&status, CloneSetCondition::PROGRESSING).context("no condition")?;
    ensure!(found.status == "False", "{found:?}");
    let _operator = MarkerOperator::start(fixture.feed(), &["PreparingNormal"]);
    set.until("it has ended", progressing(CloneSetCondition::AVAILABLE)).await.map(drop)
}
