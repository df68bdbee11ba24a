//! The connection to the hook server is cut while it is asked in each phase.

use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Scene, Test};

use super::held::Held;
use crate::hooks::{script::Reply, told::message};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::node("chaos_hook_connection_cut", hook_connection_cut),
        Test::node("chaos_hook_server_away", hook_server_away),
    ]
}

/// Several times, with every question open on it.
async fn hook_connection_cut(scene: Arc<Scene>) -> Result<()> {
    let held = Held::set_up(&scene).await?;
    for _ in 0..3 {
        held.hook().until("every question to be open", |log| log.open == Held::waiting().len()).await?;
        let counts = held.counts();
        held.hook().go_away().await?;
        // A hook that was out of reach is asked a few things at first, and all when it has answered one.
        held.answer(Reply::Pending);
        held.hook().come_back().await?;
        held.until_asked_again(&counts).await?;
        held.ensure_held(&scene)?;
        held.answer(Reply::Silent);
    }
    held.go_on(&scene).await
}

async fn hook_server_away(scene: Arc<Scene>) -> Result<()> {
    let held = Held::set_up(&scene).await?;
    let counts = held.counts();
    held.hook().go_away().await?;
    let told = Held::waiting().map(async |name| {
        let is_told = |pod: &Pod| message(pod).contains("can't be reached");
        scene.feed().until(name, "it says that the hook can't be reached", is_told).await
    });
    try_join_all(told).await?;
    held.ensure_held(&scene)?;
    held.answer(Reply::Pending);
    held.hook().come_back().await?;
    held.until_asked_again(&counts).await?;
    held.go_on(&scene).await
}
