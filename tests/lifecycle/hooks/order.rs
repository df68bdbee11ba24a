//! The order of calls to hooks, and their timing relative to the gate.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_core::{ConditionStatus, keys::Stage};
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;

use super::{
    script::{HookCallLog, HookReply},
    server::HookServer,
};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("hooks_in_their_order", hooks_in_their_order),
        Test::node("hooks_around_the_gate", hooks_around_the_gate),
    ]
}

/// Hooks with lower orders drain first and add last. Hooks with equal orders are called at once.
async fn hooks_in_their_order(fixture: Arc<Fixture>) -> Result<()> {
    let hooks =
        try_join_all(["first", "second", "beside", "third"].map(|name| HookServer::start(&fixture, name)));
    let hooks = hooks.await?;
    let phases = json!(["PreCheck", "Prepare", "PostCheck", "Complete"]);
    for (hook, order) in hooks.iter().zip([-5, 0, 0, 7]) {
        // The second call must not come by chance, so every hook first answers PENDING.
        hook.put_reachable(json!({"phases": phases, "order": order})).await?;
    }
    fixture.create("web").await?;
    fixture.until_available("web").await?;
    let operator = fixture.operator("a", "update");
    let falling = [Phase::PreCheck, Phase::Prepare, Phase::PostCheck];
    for phase in falling.into_iter().chain([Phase::Complete]) {
        hooks.iter().for_each(|hook| hook.answer(phase, HookReply::Pending));
    }
    let before: Vec<HookCallLog> = hooks.iter().map(|hook| hook.log()).collect();
    operator.begin("web").await?;
    for phase in [Phase::PreCheck, Phase::Prepare] {
        one_after_the_other(&hooks, phase).await?;
    }
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    one_after_the_other(&hooks, Phase::PostCheck).await?;
    let taken_in: Vec<&HookServer> = hooks.iter().rev().collect();
    let orders = [taken_in[0], taken_in[1], taken_in[2], taken_in[3]];
    one_by_one(orders, Phase::Complete).await?;
    operator.await_end("web").await?;
    // The new pod was added in the same order.
    let turn = |number: usize| before[number].first("web", Phase::Complete);
    ensure!(turn(3) < turn(1) && turn(3) < turn(2) && turn(1).max(turn(2)) < turn(0), "{before:?}");
    Ok(())
}

async fn one_after_the_other(hooks: &[HookServer], phase: Phase) -> Result<()> {
    one_by_one([&hooks[0], &hooks[1], &hooks[2], &hooks[3]], phase).await
}

/// Checks that the first of `hooks` is called until it is done, then the next two at once, then the last.
async fn one_by_one(hooks: [&HookServer; 4], phase: Phase) -> Result<()> {
    let [first, second, beside, last] = hooks;
    let asked = |hook: &HookServer| hook.log().last("web", phase);
    first.until_called_again("web", phase, 2).await?;
    first.answer(phase, HookReply::Done);
    tokio::try_join!(second.until_called_again("web", phase, 2), beside.until_called_again("web", phase, 2))?;
    second.answer(phase, HookReply::Done);
    beside.until_called_again("web", phase, 2).await?;
    beside.answer(phase, HookReply::Done);
    last.until_called_again("web", phase, 2).await?;
    last.answer(phase, HookReply::Done);
    last.until("the last hook to be done", |log| {
        log.about("web", phase).any(|asked| asked.reply == Some(HookReply::Done))
    })
    .await?;
    let since = |hook: &HookServer| first_since(&hook.log(), phase);
    let (middle_from, middle_to) = (since(second).min(since(beside)), asked(second).max(asked(beside)));
    ensure!(asked(first) < middle_from, "{phase:?}: the next were asked before the first was done");
    ensure!(middle_to < since(last), "{phase:?}: the last was asked before the others were done");
    Ok(())
}

/// Returns the time of the first call of the latest question of `phase`.
fn first_since(log: &HookCallLog, phase: Phase) -> Option<usize> {
    let latest = log.about("web", phase).last()?.request.question_id.clone();
    log.about("web", phase).find(|asked| asked.request.question_id == latest).map(|asked| asked.turn)
}

async fn hooks_around_the_gate(fixture: Arc<Fixture>) -> Result<()> {
    let (early, late) =
        (HookServer::start(&fixture, "early").await?, HookServer::start(&fixture, "late").await?);
    let timed = |prepare: &str, complete: &str| json!({"phases": ["Prepare", "Complete"], "prepareTiming": prepare, "completeTiming": complete});
    // Each is before the gate once.
    early.put_reachable(timed("BeforeGate", "AfterGate")).await?;
    late.put_reachable(timed("AfterGate", "BeforeGate")).await?;
    for hook in [&early, &late] {
        hook.answer(Phase::Prepare, HookReply::Pending);
        hook.answer(Phase::Complete, HookReply::Pending);
    }
    let gate = |pod: &Pod| pods::view(pod).gate;
    let get = || fixture.feed().get("web").context("there is no pod web");

    // Created: one hook adds it before it is Ready, the other when it is.
    fixture.create("web").await?;
    late.until_called_again("web", Phase::Complete, 3).await?;
    let pod = get()?;
    ensure!(gate(&pod) != Some(ConditionStatus::True) && !pods::is_ready(&pod), "{}", pods::describe(&pod));
    late.answer(Phase::Complete, HookReply::Done);
    early.until_called_again("web", Phase::Complete, 3).await?;
    let pod = get()?;
    ensure!(pods::is_ready(&pod) && !pods::is_available(&pod), "{}", pods::describe(&pod));
    ensure!(
        late.log().last("web", Phase::Complete) < early.log().first("web", Phase::Complete),
        "asked too early"
    );
    early.answer(Phase::Complete, HookReply::Done);
    fixture.until_available("web").await?;

    // Operated on: one hook drains it while it is in service, the other when it is out of service.
    let operator = fixture.operator("a", "update");
    operator.begin("web").await?;
    early.until_called_again("web", Phase::Prepare, 3).await?;
    let pod = get()?;
    ensure!(gate(&pod) == Some(ConditionStatus::True) && pods::is_ready(&pod), "{}", pods::describe(&pod));
    early.answer(Phase::Prepare, HookReply::Done);
    late.until_called_again("web", Phase::Prepare, 3).await?;
    let pod = get()?;
    ensure!(gate(&pod) == Some(ConditionStatus::False), "{}", pods::describe(&pod));
    ensure!(!operator.has(&pod, Stage::Operate), "permitted while a hook holds the pod");
    ensure!(
        early.log().last("web", Phase::Prepare) < late.log().first("web", Phase::Prepare),
        "asked too early"
    );
    late.answer(Phase::Prepare, HookReply::Done);
    operator.await_operate("web").await?;
    operator.finish("web").await?;
    operator.await_end("web").await
}
