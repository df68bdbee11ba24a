//! What happens when a deadline passes, and when a hook can't be reached.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys::{self, Stage};
use podward_e2e::{Scene, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;

use super::{
    script::{EXCUSE, Reply},
    server::{HookServer, has},
    told::{evidence, message, until_counted, until_event},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_deadline_holds", hook_deadline_holds),
        Test::node("hook_deadline_proceeds", hook_deadline_proceeds),
        Test::node("hook_deadline_cancels", hook_deadline_cancels),
        Test::node("hook_out_of_reach", hook_out_of_reach),
    ]
}

async fn hook_deadline_holds(scene: Arc<Scene>) -> Result<()> {
    let hook = HookServer::start(&scene, "holds").await?;
    hook.answer(Phase::Prepare, Reply::Pending);
    hook.put_reachable(json!({"phases": ["Prepare"], "deadlineSeconds": 1, "deadlinePolicy": "Hold"}))
        .await?;
    scene.create("web").await?;
    scene.until_available("web").await?;
    let operator = scene.operator("a", "update");
    operator.begin("web").await?;
    let waits = |pod: &Pod| {
        let told = message(pod);
        told.contains(hook.name()) && told.contains("waited for all the same") && told.contains(EXCUSE)
    };
    let pod = scene.feed().until("web", "it says that the deadline has passed", waits).await?;
    until_event(&scene, "web", "HookOverdue", &[hook.name(), "PREPARE"]).await?;
    let (name, phase) = (of(&hook), r#"phase="PREPARE""#);
    until_counted(&scene, "podward_consumer_timeouts_total", &[&name, phase]).await?;
    ensure!(!operator.has(&pod, Stage::Operate), "it went on without the hook: {}", pods::describe(&pod));
    // It is asked on, and the pod goes on with its answer.
    let log = hook.until_asked_again("web", Phase::Prepare, 2).await?;
    let questions: Vec<_> =
        log.about("web", Phase::Prepare).map(|asked| &asked.request.question_id).collect();
    ensure!(
        questions.windows(2).all(|pair| pair[0] == pair[1]),
        "one question has several ids: {questions:?}"
    );
    hook.answer(Phase::Prepare, Reply::Done);
    let pod = operator.await_operate("web").await?;
    ensure!(evidence(&pod, hook.name())["level"] == "PROVEN", "{}", evidence(&pod, hook.name()));
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// A hook that never answers delays a new pod, and an operation, by its deadline; both are on record.
async fn hook_deadline_proceeds(scene: Arc<Scene>) -> Result<()> {
    let hook = HookServer::start(&scene, "proceeds").await?;
    hook.answer_all(Reply::Silent);
    let spec = json!({
        "phases": ["PreCheck", "Prepare", "PostCheck", "Complete"], "callTimeoutMilliseconds": 500,
        "deadlineSeconds": 2, "deadlinePolicy": "Proceed",
    });
    hook.put_reachable(spec).await?;
    scene.create("web").await?;
    let asked = hook.until_asked("web", Phase::Complete).await?;
    let pod = scene.until_available("web").await?;
    ensure!(
        asked.request.operations.is_empty(),
        "a new pod has no operation: {:?}",
        asked.request.operations
    );
    let taken_in = &evidence(&pod, hook.name())["takenIn"];
    ensure!(taken_in["level"] == "TIMED_OUT", "evidence of taking in: {taken_in}");
    until_event(&scene, "web", "HookTimedOut", &[hook.name(), "COMPLETE", "may send no traffic yet"]).await?;

    let operator = scene.operator("a", "update");
    let begun = operator.begin("web").await?;
    let pod = operator.await_operate("web").await?;
    let let_go = evidence(&pod, hook.name());
    ensure!(let_go["level"] == "TIMED_OUT", "evidence of letting go: {let_go}");
    // By what Podward wrote: when a busy machine's tests see it is something else.
    let took = since(&pod, &Stage::Operate.key("a"))? - since(&begun, &Stage::PreCheck.key("a"))?;
    ensure!(took >= 4_000_000_000, "two deadlines of 2 s were not waited for: {took} ns");
    for phase in ["PRE_CHECK", "PREPARE"] {
        until_event(&scene, "web", "HookTimedOut", &[hook.name(), phase, "goes on without it"]).await?;
        let (name, phase) = (of(&hook), format!("phase=\"{phase}\""));
        let labels = [name.as_str(), &phase, r#"outcome="proceeded""#, r#"evidence="TIMED_OUT""#];
        until_counted(&scene, "podward_consumer_answers_total", &labels).await?;
    }
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// What a label of the protocol says when it was written, in nanoseconds since the Unix epoch.
fn since(pod: &Pod, label: &str) -> Result<i64> {
    let value = pod.labels().get(label).with_context(|| format!("the pod has no label {label}"))?;
    value.parse().with_context(|| format!("understand {label}: {value}"))
}

/// Before the permission the operation is undone, as if it had never been; the hook takes the pod in again.
async fn hook_deadline_cancels(scene: Arc<Scene>) -> Result<()> {
    let hook = HookServer::start(&scene, "cancels").await?;
    let spec = json!({
        "phases": ["PreCheck", "Prepare", "Complete"], "deadlineSeconds": 2, "deadlinePolicy": "Cancel",
    });
    hook.put_reachable(spec).await?;
    scene.create("web").await?;
    scene.until_available("web").await?;
    for (number, phase) in [Phase::PreCheck, Phase::Prepare].into_iter().enumerate() {
        let id = format!("op-{number}");
        hook.answer(phase, Reply::Pending);
        let operator = scene.operator(&id, "update");
        let completes = hook.log().about("web", Phase::Complete).count();
        operator.begin("web").await?;
        hook.until_asked("web", phase).await?;
        let is_undone =
            |pod: &Pod| pods::is_available(pod) && !Stage::ALL.iter().any(|stage| operator.has(pod, *stage));
        scene.feed().until("web", "the operation is undone", is_undone).await?;
        let words = if phase == Phase::PreCheck { "PRE_CHECK" } else { "PREPARE" };
        until_event(&scene, "web", "HookTimedOut", &[hook.name(), words, "undone", &id]).await?;
        if phase == Phase::Prepare {
            let log = hook.log();
            ensure!(
                log.about("web", Phase::Complete).count() > completes,
                "not asked to take the pod in again"
            );
        }
        hook.answer(phase, Reply::Done);
    }
    let report = scene.report("web").await?;
    let granted: Vec<_> = report.operations.iter().filter(|one| one.operate_ms.is_some()).collect();
    ensure!(granted.is_empty() && report.operations.len() == 2, "{:?}", report.operations);
    scene.operator("after", "update").update("web", &scene.images().v2).await
}

/// Two hooks that can't be reached: one is gone on without, with the evidence to say so, the other is waited for.
async fn hook_out_of_reach(scene: Arc<Scene>) -> Result<()> {
    let (ignored, waited_for) =
        (HookServer::start(&scene, "ignored").await?, HookServer::start(&scene, "waited-for").await?);
    for (hook, policy) in [(&ignored, "Ignore"), (&waited_for, "Fail")] {
        let selector = json!({"matchLabels": {"policy": policy}});
        let spec = json!({
            "podSelector": selector, "phases": ["Prepare", "Complete"], "failurePolicy": policy,
        });
        hook.put_reachable(spec).await?;
    }
    for policy in ["Ignore", "Fail"] {
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "policy": policy});
        scene.create_with(&policy.to_lowercase(), &labels, &json!({})).await?;
    }
    for pod in ["ignore", "fail"] {
        scene.until_available(pod).await?;
    }
    ignored.go_away().await?;
    waited_for.go_away().await?;
    let operator = scene.operator("a", "update");
    operator.begin("ignore").await?;
    operator.begin("fail").await?;
    let pod = operator.await_operate("ignore").await?;
    let let_go = evidence(&pod, ignored.name());
    ensure!(let_go["level"] == "ASSUMED", "evidence: {let_go}");
    ensure!(let_go["detail"].as_str().is_some_and(|detail| detail.contains("Ignore")), "evidence: {let_go}");
    let waits = |pod: &Pod| {
        let told = message(pod);
        told.contains(waited_for.name()) && told.contains("can't be reached")
    };
    let pod = scene.feed().until("fail", "it says that the hook can't be reached", waits).await?;
    ensure!(!operator.has(&pod, Stage::Operate), "it went on without the hook");
    let is_dead = |status: &_| has(status, "Reachable", "False") && status.last_error.is_some();
    waited_for.until_status("it can't be reached", is_dead).await?;
    ignored.come_back().await?;
    waited_for.come_back().await?;
    operator.await_operate("fail").await?;
    for pod in ["ignore", "fail"] {
        operator.finish(pod).await?;
        operator.await_end(pod).await?;
    }
    let is_back = |status: &_| has(status, "Reachable", "True") && status.last_error.is_none();
    waited_for.until_status("it is reached again", is_back).await.map(drop)
}

fn of(hook: &HookServer) -> String {
    format!("hook=\"{}\"", hook.name())
}
