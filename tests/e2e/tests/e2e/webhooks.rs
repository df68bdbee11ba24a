//! Both webhooks go away in the middle of operations: everything comes to its end all the same.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use podward_e2e::{Scene, Service, Test};

use crate::phases::Phases;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("webhooks_away_in_each_phase", webhooks_away_in_each_phase),
        Test::alone("one_webhook_away_in_each_phase", one_webhook_away_in_each_phase),
    ]
}

async fn webhooks_away_in_each_phase(scene: Arc<Scene>) -> Result<()> {
    let phases = Phases::set_up(&scene, "web").await?;
    let webhooks = scene.podward()?.webhooks();
    try_join_all(webhooks.iter().map(Service::kill)).await?;
    let went_on = phases.go_on(&scene).await;
    let back = try_join_all(webhooks.iter().map(Service::is_running)).await;
    restart(&scene).await?;
    went_on?;
    ensure!(!back?.contains(&true), "a webhook came back by itself: this test has shown nothing");
    let _traffic = scene.traffic();
    scene.in_service(["after"]).await?;
    scene.operator("c", "update").update("after", &scene.images().v2).await
}

async fn one_webhook_away_in_each_phase(scene: Arc<Scene>) -> Result<()> {
    for webhook in scene.podward()?.webhooks() {
        let phases = Phases::set_up(&scene, webhook.kind().as_str()).await?;
        webhook.stop().await?;
        let went_on = phases.go_on(&scene).await;
        restart(&scene).await?;
        went_on?;
    }
    Ok(())
}

async fn restart(scene: &Scene) -> Result<()> {
    try_join_all(scene.podward()?.webhooks().iter().map(Service::start)).await?;
    scene.podward()?.until_webhooks_are_asked().await
}
