//! What Podward tells those who write strange things, when it isn't strict; and what it tells everybody.

mod rollback;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, api::ListParams};
use podward_core::{Phase, keys, keys::Stage};
use podward_e2e::{Scene, Test, raw_patch};
use podward_support::{Behaviour, WAIT, within};
use serde_json::json;

use crate::hooks::told::until_counted;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::node("half_an_announcement_is_warned_of", half_an_announcement_is_warned_of),
        Test::node("a_stranger_is_warned", a_stranger_is_warned),
        Test::node("a_malformed_label_is_denied", a_malformed_label_is_denied),
        Test::node("metrics_count_the_operation", metrics_count_the_operation),
        Test::node("events_and_condition_tell_the_story", events_and_condition_tell_the_story),
    ];
    tests.extend(rollback::tests());
    tests
}

/// It is stored, the caller is warned, the pod stays in service, and its condition says what is missing.
async fn half_an_announcement_is_warned_of(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    let operating = Stage::Operating.key("a");
    let half = json!({"metadata": {"labels": {&operating: "1"}}});
    let answer = raw_patch(&scene.client(), scene.namespace(), "web", &half).await?;
    ensure!(answer.status.is_success(), "refused: {}", answer.message());
    ensure!(answer.warns_of("announced in half"), "no warning: {:?}", answer.warnings);
    let missing = Stage::OperationType.key("a");
    scene
        .feed()
        .until("web", "its condition says what is missing", |pod| condition(pod).contains(&missing))
        .await?;
    let gone = scene.label("web", &[(&operating, None)]).await?;
    ensure!(
        !gone.metadata.labels.unwrap_or_default().contains_key(&Stage::PreCheck.key("a")),
        "an orphan is left"
    );
    scene.operator("a", "update").await_end("web").await
}

async fn a_stranger_is_warned(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    let permission = json!({"metadata": {"labels": {keys::permission_key("update"): "1", Stage::PreChecked.key("a"): "1"}}});
    let answer = raw_patch(&scene.client(), scene.namespace(), "web", &permission).await?;
    ensure!(answer.warns_of("only Podward writes"), "no warning: {:?} {}", answer.warnings, answer.message());
    scene.operator("a", "update").await_end("web").await
}

async fn a_malformed_label_is_denied(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    let malformed = json!({"metadata": {"labels": {"operating.podopslifecycle.kusionstack.io": "1"}}});
    let answer = raw_patch(&scene.client(), scene.namespace(), "web", &malformed).await?;
    ensure!(!answer.status.is_success() && answer.message().contains("invalid label"), "{answer:?}");
    let malformed = json!({"metadata": {"annotations": {keys::AVAILABLE_CONDITIONS: "no JSON"}}});
    let answer = raw_patch(&scene.client(), scene.namespace(), "web", &malformed).await?;
    ensure!(
        !answer.status.is_success() && answer.message().contains(keys::AVAILABLE_CONDITIONS),
        "{answer:?}"
    );
    Ok(())
}

/// Whoever looks at the pod learns what it waits for, and afterwards what happened.
async fn events_and_condition_tell_the_story(scene: Arc<Scene>) -> Result<()> {
    let traffic = scene.traffic();
    scene.in_service(["web"]).await?;
    traffic.behave(Behaviour::HOLDS);
    let operator = scene.operator("story", "update");
    operator.begin("web").await?;
    let names_holder = |pod: &Pod| condition(pod).contains(traffic.finalizer());
    scene.feed().until("web", "its condition names who holds it", names_holder).await?;
    traffic.behave(Behaviour::PROMPT);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;

    let events: Api<Event> = Api::namespaced(scene.client(), scene.namespace());
    let told = async {
        loop {
            let events = events.list(&ListParams::default()).await.context("list events")?;
            let notes: Vec<String> = events.items.iter().filter_map(|event| event.message.clone()).collect();
            let all: String =
                notes.into_iter().filter(|note| note.contains("operation story (update)")).collect();
            let phases = [
                Phase::PreChecking,
                Phase::Preparing,
                Phase::Operating,
                Phase::PostChecking,
                Phase::Completing,
            ];
            if phases.iter().all(|phase| all.contains(phase.as_str())) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || "events that tell of every phase of the operation".to_owned(), told).await
}

async fn metrics_count_the_operation(scene: Arc<Scene>) -> Result<()> {
    scene.create("web").await?;
    scene.until_available("web").await?;
    let operator = scene.operator("counted", "a-type-of-its-own");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    // The leader counts what it sees of the pod, maybe a little later than this test.
    until_counted(&scene, "podward_operations", &["a-type-of-its-own", "Operating"]).await?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

fn condition(pod: &Pod) -> String {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.find(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    found.and_then(|condition| condition.message.clone()).unwrap_or_default()
}
