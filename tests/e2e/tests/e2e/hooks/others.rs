//! A hook, and somebody who puts and removes a finalizer of their own: both hold a pod equally.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::Stage;
use podward_e2e::{Scene, Test};
use podward_proto::v1::Phase;
use podward_support::{Behaviour, pods};
use serde_json::json;

use super::{script::Reply, server::HookServer, told::message};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("hook_beside_a_third_party", hook_beside_a_third_party)]
}

async fn hook_beside_a_third_party(scene: Arc<Scene>) -> Result<()> {
    let hook = HookServer::start(&scene, "beside").await?;
    hook.put_reachable(json!({"phases": ["Prepare", "Complete"]})).await?;
    let traffic = scene.traffic();
    traffic.behave(Behaviour::KEEPS_OUT);
    let pods = ["theirs-last", "ours-last"];
    hook.answer_about("ours-last", Phase::Complete, Reply::Pending);
    let in_service = scene.in_service(pods);
    let taken_in = async {
        // Neither is enough alone.
        let ours = |pod: &Pod| pods::is_ready(pod) && pods::holders(pod).eq([hook.finalizer()]);
        let pod = scene.feed().until("theirs-last", "the hook has taken it in", ours).await?;
        ensure!(!pods::is_available(&pod), "available without the third party: {}", pods::describe(&pod));
        traffic.behave(Behaviour::PROMPT);
        scene.until_available("theirs-last").await?;
        hook.until_asked_again("ours-last", Phase::Complete, 2).await?;
        let pod =
            scene.feed().until("ours-last", "it waits", |pod| message(pod).contains(hook.name())).await?;
        ensure!(!pods::is_available(&pod), "available without the hook: {}", pods::describe(&pod));
        hook.answer_about("ours-last", Phase::Complete, Reply::Done);
        Ok(())
    };
    tokio::try_join!(in_service, taken_in)?;

    traffic.behave_towards("theirs-last", Behaviour::HOLDS);
    hook.answer_about("ours-last", Phase::Prepare, Reply::Pending);
    let operator = scene.operator("a", "update");
    let last: [(&str, String); 2] =
        [("theirs-last", traffic.finalizer().to_owned()), ("ours-last", hook.finalizer())];
    for (pod, finalizer) in &last {
        operator.begin(pod).await?;
        let held = |pod: &Pod| pods::holders(pod).eq([finalizer.as_str()]);
        let pod = scene.feed().until(pod, "only one of them holds it", held).await?;
        ensure!(!operator.has(&pod, Stage::Operate), "permitted while {finalizer} is on it");
    }
    traffic.behave_towards("theirs-last", Behaviour::PROMPT);
    hook.answer_about("ours-last", Phase::Prepare, Reply::Done);
    for pod in pods {
        operator.await_operate(pod).await?;
        operator.finish(pod).await?;
        operator.await_end(pod).await?;
        let held_by_both = |pod: &Pod| pods::holders(pod).count() == 2;
        scene.feed().until(pod, "both hold it", held_by_both).await?;
    }
    Ok(())
}
