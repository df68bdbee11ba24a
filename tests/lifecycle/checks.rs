//! Warnings for invalid labels when Podward is not strict, and the events and conditions of each phase.

mod rollback;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, api::ListParams};
use podward_core::keys::Stage;
use podward_core::{OperationPhase, keys};
use podward_e2e::{Fixture, Test, raw_patch};
use podward_support::{TrafficBehaviour, WAIT, within};
use serde_json::json;

use crate::hooks::reports::until_counted;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::node("half_an_announcement_is_warned_of", half_an_announcement_is_warned_of),
        Test::node("an_untrusted_writer_is_warned", an_untrusted_writer_is_warned),
        Test::node("a_malformed_label_is_denied", a_malformed_label_is_denied),
        Test::node("metrics_count_the_operation", metrics_count_the_operation),
        Test::node("events_and_condition_show_every_phase", events_and_condition_show_every_phase),
    ];
    tests.extend(rollback::tests());
    tests
}

/// The label is stored, the writer gets a warning, the pod stays available, and its condition names the problem.
async fn half_an_announcement_is_warned_of(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operating = Stage::Operating.key("a");
    let half = json!({"metadata": {"labels": {&operating: "1"}}});
    let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &half).await?;
    ensure!(answer.status.is_success(), "refused: {}", answer.message());
    ensure!(answer.warns_of("incomplete"), "no warning: {:?}", answer.warnings);
    let missing = Stage::OperationType.key("a");
    fixture
        .feed()
        .until("web", "its condition says what is missing", |pod| condition(pod).contains(&missing))
        .await?;
    let gone = fixture.label("web", &[(&operating, None)]).await?;
    ensure!(
        !gone.metadata.labels.unwrap_or_default().contains_key(&Stage::PreCheck.key("a")),
        "an orphan is left"
    );
    fixture.operator("a", "update").await_end("web").await
}

async fn an_untrusted_writer_is_warned(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let permission = json!({"metadata": {"labels": {keys::permission_key("update"): "1", Stage::PreChecked.key("a"): "1"}}});
    let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &permission).await?;
    ensure!(answer.warns_of("only Podward writes"), "no warning: {:?} {}", answer.warnings, answer.message());
    fixture.operator("a", "update").await_end("web").await
}

async fn a_malformed_label_is_denied(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let malformed = json!({"metadata": {"labels": {"operating.podopslifecycle.kusionstack.io": "1"}}});
    let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &malformed).await?;
    ensure!(!answer.status.is_success() && answer.message().contains("invalid label"), "{answer:?}");
    let malformed = json!({"metadata": {"annotations": {keys::AVAILABLE_CONDITIONS: "no JSON"}}});
    let answer = raw_patch(&fixture.client(), fixture.namespace(), "web", &malformed).await?;
    ensure!(
        !answer.status.is_success() && answer.message().contains(keys::AVAILABLE_CONDITIONS),
        "{answer:?}"
    );
    Ok(())
}

/// The pod's condition and events show what it waits for, and afterwards what happened.
async fn events_and_condition_show_every_phase(fixture: Arc<Fixture>) -> Result<()> {
    let traffic = fixture.traffic();
    fixture.in_service(["web"]).await?;
    traffic.set_behaviour(TrafficBehaviour::NOT_DRAINED);
    let operator = fixture.operator("story", "story-update");
    operator.begin("web").await?;
    let names_holder = |pod: &Pod| condition(pod).contains(traffic.finalizer());
    fixture.feed().until("web", "its condition names who holds it", names_holder).await?;
    traffic.set_behaviour(TrafficBehaviour::PROMPT);
    operator.await_operate("web").await?;
    // A leader that is busy would see the pod only after this test has finished the operation.
    until_counted(&fixture, "podward_operations", &["story-update", "Operating"]).await?;
    operator.finish("web").await?;
    operator.await_end("web").await?;

    let events: Api<Event> = Api::namespaced(fixture.client(), fixture.namespace());
    let told = async {
        loop {
            let events = events.list(&ListParams::default()).await.context("list events")?;
            let notes: Vec<String> = events.items.iter().filter_map(|event| event.message.clone()).collect();
            let all: String =
                notes.into_iter().filter(|note| note.contains("operation story (story-update)")).collect();
            let phases = [
                OperationPhase::PreChecking,
                OperationPhase::Preparing,
                OperationPhase::Operating,
                OperationPhase::PostChecking,
                OperationPhase::Completing,
            ];
            if phases.iter().all(|phase| all.contains(phase.as_str())) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || "events that tell of every phase of the operation".to_owned(), told).await
}

async fn metrics_count_the_operation(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operator = fixture.operator("counted", "a-type-of-its-own");
    operator.begin("web").await?;
    operator.await_operate("web").await?;
    // The leader may count the change of the pod a little later than this test.
    until_counted(&fixture, "podward_operations", &["a-type-of-its-own", "Operating"]).await?;
    operator.finish("web").await?;
    operator.await_end("web").await
}

fn condition(pod: &Pod) -> String {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.find(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    found.and_then(|condition| condition.message.clone()).unwrap_or_default()
}
