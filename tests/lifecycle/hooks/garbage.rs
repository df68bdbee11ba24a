//! Hooks with invalid answers.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::{self, Stage};
use podward_e2e::{Fixture, Test};
use podward_proto::v1::Phase;
use podward_support::pods;
use serde_json::json;
use tonic::Code;

use super::{reports::message, script::HookReply, server::HookServer};

/// The hook's reply, and the text that reports it.
const CASES: [(&str, HookReply, &str); 5] = [
    ("fails", HookReply::Fails(Code::Internal), "as the test wants it"),
    ("refuses", HookReply::Fails(Code::Unauthenticated), "podward.io/hooks/<hook>"),
    ("nothing", HookReply::Nothing, "without an outcome"),
    ("giant", HookReply::Giant, "too large"),
    ("silent", HookReply::Silent, "no answer from"),
];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::node("hooks_that_answer_garbage", hooks_that_answer_garbage)]
}

/// Each pod waits for its own hook. Its condition names the hook and the problem, and the pod continues when the hook
/// is fixed.
async fn hooks_that_answer_garbage(fixture: Arc<Fixture>) -> Result<()> {
    let hooks = try_join_all(CASES.map(|(name, ..)| HookServer::start(&fixture, name))).await?;
    let set_up = hooks.iter().zip(CASES).map(async |(hook, (name, ..))| {
        let spec = json!({
            "podSelector": {"matchLabels": {"app": name}}, "phases": ["Prepare", "Complete"],
            "callTimeoutMilliseconds": 500,
        });
        hook.put_reachable(spec).await?;
        let labels = json!({keys::CONTROL_LABEL: keys::CONTROL_VALUE, "app": name});
        fixture.create_with(name, &labels, &json!({})).await?;
        fixture.until_available(name).await
    });
    try_join_all(set_up).await?;
    let operator = fixture.operator("a", "update");
    let wait = hooks.iter().zip(CASES).map(async |(hook, (name, reply, words))| {
        hook.answer(Phase::Prepare, reply);
        operator.begin(name).await?;
        let is_told = |pod: &Pod| {
            let told = message(pod);
            told.contains(words) && told.contains(hook.name()) && told.contains("can't be reached")
        };
        let pod = fixture.feed().until(name, &format!("it says {words:?}"), is_told).await?;
        ensure!(!operator.has(&pod, Stage::Operate), "permitted: {}", pods::describe(&pod));
        hook.until_status("it says what went wrong", |status| {
            status.last_error.as_ref().is_some_and(|error| error.contains(words))
        })
        .await
    });
    try_join_all(wait).await?;
    let mended = hooks.iter().zip(CASES).map(async |(hook, (name, ..))| {
        hook.answer(Phase::Prepare, HookReply::Done);
        operator.await_operate(name).await?;
        operator.finish(name).await?;
        operator.await_end(name).await
    });
    try_join_all(mended).await.map(drop)
}
