//! A slow or dead hook does not delay other pods.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use podward_core::keys::{self, Stage};
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;

use super::{
    script::HookReply,
    server::{HookServer, has},
};

/// The number of concurrent calls to the slow hook.
const MAX_CONCURRENT: usize = 2;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("hook_that_is_slow_or_dead", hook_that_is_slow_or_dead)]
}

async fn hook_that_is_slow_or_dead(fixture: Arc<Fixture>) -> Result<()> {
    let slow = HookServer::start(&fixture, "slow").await?;
    let prompt = HookServer::start(&fixture, "prompt").await?;
    let of = |app: &str| json!({"matchLabels": {"app": app}});
    let spec = json!({
        "podSelector": of("slow"), "phases": ["Prepare", "Complete"], "maxConcurrentCalls": MAX_CONCURRENT,
    });
    slow.put_reachable(spec).await?;
    prompt.put_reachable(json!({"podSelector": of("prompt"), "phases": ["Prepare", "Complete"]})).await?;
    let slow_ones = ["slow-0", "slow-1", "slow-2", "slow-3", "slow-4"];
    let others = ["prompt-0", "free-0"];
    let all = || slow_ones.into_iter().chain(others);
    let create = |name: &'static str| {
        let app = name.split('-').next().unwrap_or_default();
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "app": app});
        let fixture = &fixture;
        async move { fixture.create_with(name, &labels, &json!({})).await }
    };
    try_join_all(all().map(create)).await?;
    try_join_all(all().map(|pod| fixture.until_available(pod))).await?;

    slow.answer(Phase::Prepare, HookReply::Silent);
    let operator = fixture.operator("a", "update");
    try_join_all(slow_ones.map(|pod| operator.begin(pod))).await?;
    slow.until("as many questions as it takes", |log| log.open == MAX_CONCURRENT).await?;
    let nobody_went_on = |when: &str| {
        let went = fixture.feed().all().into_iter().find(|pod| operator.has(pod, Stage::Operate));
        ensure!(went.is_none(), "{when}: a pod went on without its hook");
        Ok(())
    };
    let others_go_on = || async {
        let other = fixture.operator("b", "update");
        for pod in others {
            other.begin(pod).await?;
            other.await_operate(pod).await?;
            other.finish(pod).await?;
            other.await_end(pod).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    others_go_on().await?;
    nobody_went_on("slow")?;
    slow.shut_down().await?;
    slow.until_status("it can't be reached", |status| has(status, "Reachable", "False")).await?;
    others_go_on().await?;
    nobody_went_on("dead")?;
    slow.come_back().await?;
    slow.answer(Phase::Prepare, HookReply::Done);
    for pod in slow_ones {
        operator.await_operate(pod).await?;
        operator.finish(pod).await?;
    }
    for pod in slow_ones {
        operator.await_end(pod).await?;
        let pod = fixture.feed().get(pod);
        ensure!(
            pod.as_ref().is_some_and(|pod| pods::holders(pod).count() == 1),
            "not held by its hook alone"
        );
    }
    let most = slow.log().most_open;
    ensure!(most <= MAX_CONCURRENT, "{most} questions at once");
    Ok(())
}
