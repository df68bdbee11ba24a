//! Busy pods: operations, deletes, evictions and scale-ins wait for them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, ResourceExt};
use podward_core::busy::{BUSY_EVIDENCE, HIGHEST_COST};
use podward_core::keys::{
    BUSY_REASON, BUSY_UNTIL, CONTROL_LABEL, CONTROL_VALUE, EVIDENCE, LIFECYCLE_CONDITION, POD_DELETION_COST,
    Stage,
};
use podward_e2e::{Fixture, MAX_BUSY_SECONDS, Test};
use podward_support::{WAIT, pods, within};
use serde_json::{Value, json};

use super::{
    evictions::evict,
    objects::{
        deployment, is_delete_requested, is_of, make, names_of, scale, serves, too_many, until_gone,
        until_serving,
    },
};

/// The work of the pods.
const WORK: &str = "encoding 17";
/// The interval of checks that cannot use a watch.
const POLL: Duration = Duration::from_millis(50);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("operations_wait_for_busy_pods", operations_wait_for_busy_pods),
        Test::node("deletes_of_busy_pods_wait", deletes_of_busy_pods_wait),
        Test::node(
            "evictions_of_busy_pods_leave_room_for_others",
            evictions_of_busy_pods_leave_room_for_others,
        ),
        Test::simulated("busy_pods_are_not_waited_for_for_ever", busy_pods_are_not_waited_for_for_ever),
        Test::simulated("work_that_cant_be_read_is_refused", work_that_cant_be_read_is_refused),
        Test::simulated("scale_in_takes_idle_pods_first", scale_in_takes_idle_pods_first),
    ]
}

/// Marks the pod as busy for longer than any test takes, and returns the pod.
async fn busy(fixture: &Fixture, name: &str) -> Result<Pod> {
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(12);
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    fixture.patch(name, json!({"metadata": {"annotations": {BUSY_UNTIL: until, BUSY_REASON: WORK}}})).await
}

async fn idle(fixture: &Fixture, name: &str) -> Result<Pod> {
    fixture.patch(name, json!({"metadata": {"annotations": {BUSY_UNTIL: null, BUSY_REASON: null}}})).await
}

/// Returns whether the pod's condition names its work.
fn reports_work(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut told = conditions.filter(|condition| condition.type_ == LIFECYCLE_CONDITION);
    told.any(|told| {
        told.message.as_ref().is_some_and(|text| text.contains("busy until") && text.contains(WORK))
    })
}

/// The operation waits while the pod stays available. The condition names the reason, and it continues when the work
/// is done.
async fn operations_wait_for_busy_pods(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    busy(&fixture, "web").await?;
    let operator = fixture.operator("upgrade", "update");
    operator.begin("web").await?;
    let waiting = fixture.feed().until("web", "its condition tells of its work", reports_work).await?;
    ensure!(operator.has(&waiting, Stage::PreCheck) && !operator.has(&waiting, Stage::PreChecked));
    ensure!(pods::is_available(&waiting) && pods::is_ready(&waiting), "it left service");
    let event = fixture.until_event("web", "PodBusy").await?;
    ensure!(event.contains("upgrade") && event.contains(WORK), "the event says {event:?}");
    let why = fixture.plugin(&["why", "web"]).await?.succeeded()?;
    ensure!(why.said.contains("upgrade") && why.said.contains(WORK), "the plugin says {}", why.said);
    idle(&fixture, "web").await?;
    operator.await_operate("web").await?;
    // Too late: the operation has its permission.
    let late = busy(&fixture, "web").await?;
    ensure!(operator.has(&late, Stage::Operate));
    operator.finish("web").await?;
    idle(&fixture, "web").await?;
    fixture.until_available("web").await.map(drop)
}

/// kubectl shows until when and why. The deletion request is recorded, and executed when the work is done.
async fn deletes_of_busy_pods_wait(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    busy(&fixture, "web").await?;
    for _ in 0..2 {
        let said = fixture.kubectl(&["delete", "pod", "web", "--wait=false"]).await?;
        said.was_held(&["the pod is busy until 2", WORK, "to cancel: "])?;
    }
    let waiting = fixture.feed().until("web", "its condition tells of its work", reports_work).await?;
    ensure!(is_delete_requested(&waiting) && pods::is_available(&waiting) && pods::is_ready(&waiting));
    idle(&fixture, "web").await?;
    until_gone(&fixture, "web").await?;
    fixture.until_event("web", "PodDeletion").await.map(drop)
}

/// The budget allows one of three pods. The first one with a request is busy, so another one is deleted meanwhile.
/// Then the first one waits for the budget.
async fn evictions_of_busy_pods_leave_room_for_others(fixture: Arc<Fixture>) -> Result<()> {
    let labels = json!({CONTROL_LABEL: CONTROL_VALUE, "app": "web"});
    for name in ["busy", "idle", "other"] {
        fixture.create_with(name, &labels, &json!({})).await?;
    }
    for name in ["busy", "idle", "other"] {
        fixture.until_available(name).await?;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    make(&fixture, budget).await?;
    let counted = async {
        while disruptions(&fixture).await? != (1, 0) {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || "the budget to be counted".to_owned(), counted).await?;
    busy(&fixture, "busy").await?;
    too_many(evict(&fixture, "v1", "busy", json!({})).await, &["the pod is busy until 2", WORK])?;
    let waits = |pod: &Pod| pods::has_label(pod, &Stage::PreCheck.key("pod-delete"));
    fixture.feed().until("busy", "its eviction waits", waits).await?;
    ensure!(disruptions(&fixture).await? == (1, 0), "it holds room while it is busy");

    let gone = evict(&fixture, "v1", "idle", json!({})).await;
    ensure!(gone.is_ok() || matches!(&gone, Err(kube::Error::Api(status)) if status.code == 429), "{gone:?}");
    until_gone(&fixture, "idle").await?;
    idle(&fixture, "busy").await?;
    let waits_for_room = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut told = conditions.filter_map(|condition| condition.message.as_ref());
        told.any(|text| text.contains("disruption budget"))
    };
    let waiting = fixture.feed().until("busy", "it waits for room", waits_for_room).await?;
    ensure!(pods::is_ready(&waiting), "it left service without room");
    fixture.create_with("next", &labels, &json!({})).await?;
    until_gone(&fixture, "busy").await?;
    fixture.until_event("busy", "PodEvicted").await.map(drop)
}

/// Returns how many disruptions the budget allows, and how many it has allowed so far.
async fn disruptions(fixture: &Fixture) -> Result<(i32, usize)> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(fixture.client(), fixture.namespace());
    let status = api.get("web").await.context("read the budget")?.status.unwrap_or_default();
    Ok((status.disruptions_allowed, status.disrupted_pods.unwrap_or_default().len()))
}

/// When the maximum time since the announcement has passed, the operation continues, even if the pod is still busy,
/// and that is recorded.
async fn busy_pods_are_not_waited_for_for_ever(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    busy(&fixture, "web").await?;
    let operator = fixture.operator("upgrade", "update");
    operator.begin("web").await?;
    let announced = operator.await_stage("web", Stage::PreCheck).await?;
    let granted = operator.await_stage("web", Stage::PreChecked).await?;
    let time = |pod: &Pod, stage| pod.labels().get(&operator.key(stage)).and_then(|text| text.parse().ok());
    let (from, to): (Option<i64>, Option<i64>) =
        (time(&announced, Stage::PreCheck), time(&granted, Stage::PreChecked));
    let waited = to.zip(from).map(|(to, from)| to - from).context("labels without times")?;
    ensure!(waited >= i64::from(MAX_BUSY_SECONDS) * 1_000_000_000, "it waited {waited} ns");
    let evidence = granted.annotations().get(EVIDENCE).context("no evidence")?;
    let evidence: Value = serde_json::from_str(evidence)?;
    ensure!(evidence[BUSY_EVIDENCE]["level"] == "TIMED_OUT", "{evidence}");
    let told = fixture.until_event("web", "BusyPodInterrupted").await?;
    ensure!(told.contains("operation upgrade (update)") && told.contains(WORK), "{told}");
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    fixture.until_available("web").await.map(drop)
}

/// The webhook rejects an invalid value, with the reason.
async fn work_that_cant_be_read_is_refused(fixture: Arc<Fixture>) -> Result<()> {
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    for (annotation, text) in [(BUSY_UNTIL, "tomorrow".to_owned()), (BUSY_REASON, "x".repeat(257))] {
        let refused = fixture.patch("web", json!({"metadata": {"annotations": {annotation: text}}})).await;
        let words = format!("{:#}", refused.err().context("it was let through")?);
        ensure!(words.contains(annotation) && words.contains("denied the request"), "{words}");
    }
    Ok(())
}

/// Of four pods the busy ones stay while there are idle ones. When only busy ones are left, the choice waits, and
/// they stay available.
async fn scale_in_takes_idle_pods_first(fixture: Arc<Fixture>) -> Result<()> {
    make(&fixture, without_consumers(deployment(&fixture, "web", 4))).await?;
    let names = until_serving(&fixture, "web", 4).await?;
    let at_work: BTreeSet<String> = names.iter().take(2).cloned().collect();
    for name in &at_work {
        let pod = busy(&fixture, name).await?;
        let cost = pod.annotations().get(POD_DELETION_COST).map(String::as_str);
        ensure!(cost == Some(HIGHEST_COST), "{name} has the cost {cost:?} in the answer to the very write");
    }
    scale(&fixture, "Deployment", "web", 2).await?;
    until_serving(&fixture, "web", 2).await?;
    let left: BTreeSet<String> = names_of(&fixture, "web").into_iter().collect();
    ensure!(left == at_work, "{left:?} are left, and {at_work:?} are busy");

    scale(&fixture, "Deployment", "web", 1).await?;
    let one_is_chosen =
        |pods: &[&Pod]| pods.iter().filter(|pod| is_of(pod, "web") && is_delete_requested(pod)).count() == 1;
    let chosen = fixture.feed().until_pods("one is chosen", one_is_chosen).await?;
    ensure!(chosen.iter().all(|pod| pods::is_ready(pod)), "one left service");
    for name in &at_work {
        let pod = idle(&fixture, name).await?;
        if !is_delete_requested(&pod) {
            let annotations = pod.annotations();
            ensure!(!annotations.contains_key(POD_DELETION_COST), "{name} keeps its cost: {annotations:?}");
        }
    }
    let one_serves = |pods: &[&Pod]| pods.len() == 1 && pods.iter().all(|pod| serves(pod));
    fixture.feed().until_pods("one is left", one_serves).await.map(drop)
}

/// Returns the same Deployment, without expected consumers.
fn without_consumers(mut deployment: Value) -> Value {
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({});
    deployment
}
