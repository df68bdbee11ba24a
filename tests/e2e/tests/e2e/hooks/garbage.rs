//! Hooks whose answers are none.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::{self, Stage};
use podward_e2e::{Scene, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;
use tonic::Code;

use super::{script::Reply, server::HookServer, told::message};

/// What a hook says for an answer, and what is told of that.
const CASES: [(&str, Reply, &str); 5] = [
    ("fails", Reply::Fails(Code::Internal), "as the test wants it"),
    ("refuses", Reply::Fails(Code::Unauthenticated), "--hook-token-file"),
    ("nothing", Reply::Nothing, "without an outcome"),
    ("giant", Reply::Giant, "too large"),
    ("silent", Reply::Silent, "no answer from"),
];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("hooks_that_answer_garbage", hooks_that_answer_garbage)]
}

/// Each pod waits for its own hook, which is named with what is wrong with it, and goes on when the hook is mended.
async fn hooks_that_answer_garbage(scene: Arc<Scene>) -> Result<()> {
    let hooks = try_join_all(CASES.map(|(name, ..)| HookServer::start(&scene, name))).await?;
    let set_up = hooks.iter().zip(CASES).map(async |(hook, (name, ..))| {
        let spec = json!({
            "podSelector": {"matchLabels": {"app": name}}, "phases": ["Prepare", "Complete"],
            "callTimeoutMilliseconds": 500,
        });
        hook.put_reachable(spec).await?;
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "app": name});
        scene.create_with(name, &labels, &json!({})).await?;
        scene.until_available(name).await
    });
    try_join_all(set_up).await?;
    let operator = scene.operator("a", "update");
    let wait = hooks.iter().zip(CASES).map(async |(hook, (name, reply, words))| {
        hook.answer(Phase::Prepare, reply);
        operator.begin(name).await?;
        let is_told = |pod: &Pod| {
            let told = message(pod);
            told.contains(words) && told.contains(hook.name()) && told.contains("can't be reached")
        };
        let pod = scene.feed().until(name, &format!("it says {words:?}"), is_told).await?;
        ensure!(!operator.has(&pod, Stage::Operate), "permitted: {}", pods::describe(&pod));
        hook.until_status("it says what went wrong", |status| {
            status.last_error.as_ref().is_some_and(|error| error.contains(words))
        })
        .await
    });
    try_join_all(wait).await?;
    let mended = hooks.iter().zip(CASES).map(async |(hook, (name, ..))| {
        hook.answer(Phase::Prepare, Reply::Done);
        operator.await_operate(name).await?;
        operator.finish(name).await?;
        operator.await_end(name).await
    });
    try_join_all(mended).await.map(drop)
}
