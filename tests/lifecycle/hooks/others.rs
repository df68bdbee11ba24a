//! A hook, and an external consumer with a finalizer of its own: both hold a pod in the same way.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::{TrafficBehaviour, pods};
use serde_json::json;

use super::{reports::message, script::HookReply, server::HookServer};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("hook_beside_an_external_consumer", hook_beside_an_external_consumer)]
}

async fn hook_beside_an_external_consumer(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "beside").await?;
    hook.put_reachable(json!({"phases": ["Prepare", "Complete"]})).await?;
    let traffic = fixture.traffic();
    traffic.set_behaviour(TrafficBehaviour::NOT_ADDED);
    let pods = ["theirs-last", "ours-last"];
    hook.answer_about("ours-last", Phase::Complete, HookReply::Pending);
    let in_service = fixture.in_service(pods);
    let taken_in = async {
        // The pod waits for both.
        let ours = |pod: &Pod| pods::is_ready(pod) && pods::holders(pod).eq([hook.finalizer()]);
        let pod = fixture.feed().until("theirs-last", "the hook has taken it in", ours).await?;
        ensure!(
            !pods::is_available(&pod),
            "available without the external consumer: {}",
            pods::describe(&pod)
        );
        traffic.set_behaviour(TrafficBehaviour::PROMPT);
        fixture.until_available("theirs-last").await?;
        hook.until_called_again("ours-last", Phase::Complete, 2).await?;
        let pod =
            fixture.feed().until("ours-last", "it waits", |pod| message(pod).contains(hook.name())).await?;
        ensure!(!pods::is_available(&pod), "available without the hook: {}", pods::describe(&pod));
        hook.answer_about("ours-last", Phase::Complete, HookReply::Done);
        Ok(())
    };
    tokio::try_join!(in_service, taken_in)?;

    traffic.set_behaviour_for("theirs-last", TrafficBehaviour::NOT_DRAINED);
    hook.answer_about("ours-last", Phase::Prepare, HookReply::Pending);
    let operator = fixture.operator("a", "update");
    let last: [(&str, String); 2] =
        [("theirs-last", traffic.finalizer().to_owned()), ("ours-last", hook.finalizer())];
    for (pod, finalizer) in &last {
        operator.begin(pod).await?;
        let held = |pod: &Pod| pods::holders(pod).eq([finalizer.as_str()]);
        let pod = fixture.feed().until(pod, "only one of them holds it", held).await?;
        ensure!(!operator.has(&pod, Stage::Operate), "permitted while {finalizer} is on it");
    }
    traffic.set_behaviour_for("theirs-last", TrafficBehaviour::PROMPT);
    hook.answer_about("ours-last", Phase::Prepare, HookReply::Done);
    for pod in pods {
        operator.await_operate(pod).await?;
        operator.finish(pod).await?;
        operator.await_end(pod).await?;
        let held_by_both = |pod: &Pod| pods::holders(pod).count() == 2;
        fixture.feed().until(pod, "both hold it", held_by_both).await?;
    }
    Ok(())
}
