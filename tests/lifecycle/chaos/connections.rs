//! The connection to the hook server is cut while the hook is called in each phase.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};

use super::waiting_pods::HeldPods;
use crate::hooks::{reports::message, script::HookReply};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("chaos_hook_connection_cut", hook_connection_cut),
        Test::node("chaos_hook_server_away", hook_server_down),
    ]
}

/// Cuts the connection several times, with all calls open on it.
async fn hook_connection_cut(fixture: Arc<Fixture>) -> Result<()> {
    let held = HeldPods::set_up(&fixture).await?;
    for _ in 0..3 {
        held.hook().until("every question to be open", |log| log.open == HeldPods::waiting().len()).await?;
        let counts = held.counts();
        held.hook().shut_down().await?;
        // A hook that was unreachable gets a few calls at first, and all calls when it has answered one.
        held.answer(HookReply::Pending);
        held.hook().come_back().await?;
        held.until_called_again(&counts).await?;
        held.ensure_held(&fixture)?;
        held.answer(HookReply::Silent);
    }
    held.go_on(&fixture).await
}

async fn hook_server_down(fixture: Arc<Fixture>) -> Result<()> {
    let held = HeldPods::set_up(&fixture).await?;
    let counts = held.counts();
    held.hook().shut_down().await?;
    let told = HeldPods::waiting().map(async |name| {
        let is_told = |pod: &Pod| message(pod).contains("can't be reached");
        fixture.feed().until(name, "it says that the hook can't be reached", is_told).await
    });
    try_join_all(told).await?;
    held.ensure_held(&fixture)?;
    held.answer(HookReply::Pending);
    held.hook().come_back().await?;
    held.until_called_again(&counts).await?;
    held.go_on(&fixture).await
}
