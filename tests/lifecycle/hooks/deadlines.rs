//! Deadlines that pass, and hooks that cannot be reached.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::keys::{self, Stage};
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;

use super::{
    reports::{evidence, message, until_counted, until_event},
    script::{EXCUSE, HookReply},
    server::{HookServer, has},
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hook_deadline_holds", hook_deadline_holds),
        Test::node("hook_deadline_proceeds", hook_deadline_proceeds),
        Test::node("hook_deadline_cancels", hook_deadline_cancels),
        Test::node("hook_out_of_reach", hook_out_of_reach),
    ]
}

async fn hook_deadline_holds(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "holds").await?;
    hook.answer(Phase::Prepare, HookReply::Pending);
    hook.put_reachable(json!({"phases": ["Prepare"], "deadlineSeconds": 1, "deadlinePolicy": "Hold"}))
        .await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    let waits = |pod: &Pod| {
        let told = message(pod);
        told.contains(hook.name()) && told.contains("and the pod keeps waiting") && told.contains(EXCUSE)
    };
    let pod = fixture.feed().until("web", "it says that the deadline has passed", waits).await?;
    until_event(&fixture, "web", "HookOverdue", &[hook.name(), "PREPARE"]).await?;
    let (name, phase) = (of(&hook), r#"phase="PREPARE""#);
    until_counted(&fixture, "podward_consumer_timeouts_total", &[&name, phase]).await?;
    ensure!(!operator.has(&pod, Stage::Operate), "it went on without the hook: {}", pods::describe(&pod));
    // The hook gets further calls, and the pod continues with its answer.
    let log = hook.until_called_again("web", Phase::Prepare, 2).await?;
    let questions: Vec<_> =
        log.about("web", Phase::Prepare).map(|asked| &asked.request.question_id).collect();
    ensure!(
        questions.windows(2).all(|pair| pair[0] == pair[1]),
        "one question has several ids: {questions:?}"
    );
    hook.answer(Phase::Prepare, HookReply::Done);
    let pod = operator.await_operate("web").await?;
    ensure!(evidence(&pod, hook.name())["level"] == "PROVEN", "{}", evidence(&pod, hook.name()));
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// A hook that never answers delays a new pod and an operation by its deadline. Both are recorded.
async fn hook_deadline_proceeds(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "proceeds").await?;
    hook.answer_all(HookReply::Silent);
    let spec = json!({
        "phases": ["PreCheck", "Prepare", "PostCheck", "Complete"], "callTimeoutMilliseconds": 500,
        "deadlineSeconds": 2, "deadlinePolicy": "Proceed",
    });
    hook.put_reachable(spec).await?;
    fixture.create("web").await?;
    let asked = hook.until_called("web", Phase::Complete).await?;
    let pod = fixture.until_available("web").await?;
    ensure!(
        asked.request.operations.is_empty(),
        "a new pod has no operation: {:?}",
        asked.request.operations
    );
    let added = &evidence(&pod, hook.name())["added"];
    ensure!(added["level"] == "TIMED_OUT", "evidence of adding to traffic: {added}");
    until_event(&fixture, "web", "HookTimedOut", &[hook.name(), "COMPLETE", "may send no traffic yet"])
        .await?;

    let operator = fixture.operator("a", "update");
    let begun = operator.begin("web").await?;
    let pod = operator.await_operate("web").await?;
    let drained = evidence(&pod, hook.name());
    ensure!(drained["level"] == "TIMED_OUT", "evidence of the drain: {drained}");
    // From the times that Podward wrote. A busy machine's test sees them later.
    let took = since(&pod, &Stage::Operate.key("a"))? - since(&begun, &Stage::PreCheck.key("a"))?;
    ensure!(took >= 4_000_000_000, "two deadlines of 2 s were not waited for: {took} ns");
    for phase in ["PRE_CHECK", "PREPARE"] {
        until_event(&fixture, "web", "HookTimedOut", &[hook.name(), phase, "proceeds without it"]).await?;
        let (name, phase) = (of(&hook), format!("phase=\"{phase}\""));
        let labels = [name.as_str(), &phase, r#"outcome="proceeded""#, r#"evidence="TIMED_OUT""#];
        until_counted(&fixture, "podward_consumer_answers_total", &labels).await?;
    }
    operator.finish("web").await?;
    operator.await_end("web").await
}

/// Returns the time in a label of the protocol, in nanoseconds since the Unix epoch.
fn since(pod: &Pod, label: &str) -> Result<i64> {
    let value = pod.labels().get(label).with_context(|| format!("the pod has no label {label}"))?;
    value.parse().with_context(|| format!("understand {label}: {value}"))
}

/// Before the permission, the operation is cancelled, as if it had never begun. The hook adds the pod to traffic
/// again.
async fn hook_deadline_cancels(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "cancels").await?;
    let spec = json!({
        "phases": ["PreCheck", "Prepare", "Complete"], "deadlineSeconds": 2, "deadlinePolicy": "Cancel",
    });
    hook.put_reachable(spec).await?;
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    for (number, phase) in [Phase::PreCheck, Phase::Prepare].into_iter().enumerate() {
        let id = format!("op-{number}");
        hook.answer(phase, HookReply::Pending);
        let operator = fixture.operator(&id, "update");
        let completes = hook.log().about("web", Phase::Complete).count();
        operator.begin("web").await?;
        hook.until_called("web", phase).await?;
        let is_undone =
            |pod: &Pod| pods::is_available(pod) && !Stage::ALL.iter().any(|stage| operator.has(pod, *stage));
        fixture.feed().until("web", "the operation is undone", is_undone).await?;
        let words = if phase == Phase::PreCheck { "PRE_CHECK" } else { "PREPARE" };
        until_event(&fixture, "web", "HookTimedOut", &[hook.name(), words, "cancelled operations", &id])
            .await?;
        if phase == Phase::Prepare {
            let log = hook.log();
            ensure!(
                log.about("web", Phase::Complete).count() > completes,
                "not asked to add the pod to traffic again"
            );
        }
        hook.answer(phase, HookReply::Done);
    }
    let report = fixture.report("web").await?;
    let granted: Vec<_> = report.operations.iter().filter(|one| one.operate_ms.is_some()).collect();
    ensure!(granted.is_empty() && report.operations.len() == 2, "{:?}", report.operations);
    fixture.operator("after", "update").update("web", &fixture.images().v2).await
}

/// Two hooks that cannot be reached: the pod continues without one, with evidence of that, and waits for the other.
async fn hook_out_of_reach(fixture: Arc<Fixture>) -> Result<()> {
    let (ignored, waited_for) =
        (HookServer::start(&fixture, "ignored").await?, HookServer::start(&fixture, "waited-for").await?);
    for (hook, policy) in [(&ignored, "Ignore"), (&waited_for, "Fail")] {
        let selector = json!({"matchLabels": {"policy": policy}});
        let spec = json!({
            "podSelector": selector, "phases": ["Prepare", "Complete"], "failurePolicy": policy,
        });
        hook.put_reachable(spec).await?;
    }
    for policy in ["Ignore", "Fail"] {
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "policy": policy});
        fixture.create_with(&policy.to_lowercase(), &labels, &json!({})).await?;
    }
    for pod in ["ignore", "fail"] {
        fixture.until_available(pod).await?;
    }
    ignored.shut_down().await?;
    waited_for.shut_down().await?;
    let operator = fixture.operator("a", "update");
    operator.begin("ignore").await?;
    operator.begin("fail").await?;
    let pod = operator.await_operate("ignore").await?;
    let drained = evidence(&pod, ignored.name());
    ensure!(drained["level"] == "ASSUMED", "evidence: {drained}");
    ensure!(
        drained["detail"].as_str().is_some_and(|detail| detail.contains("Ignore")),
        "evidence: {drained}"
    );
    let waits = |pod: &Pod| {
        let told = message(pod);
        told.contains(waited_for.name()) && told.contains("can't be reached")
    };
    let pod = fixture.feed().until("fail", "it says that the hook can't be reached", waits).await?;
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
