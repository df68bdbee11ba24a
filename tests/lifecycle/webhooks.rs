//! Both webhooks are down in the middle of operations. All operations end anyway.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use podward_e2e::{Fixture, ServiceInstance, Test};

use crate::phases::Phases;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("webhooks_down_in_each_phase", webhooks_down_in_each_phase),
        Test::alone("one_webhook_is_down_in_each_phase", one_webhook_is_down_in_each_phase),
    ]
}

async fn webhooks_down_in_each_phase(fixture: Arc<Fixture>) -> Result<()> {
    let phases = Phases::set_up(&fixture, "web").await?;
    let webhooks = fixture.podward()?.webhooks();
    try_join_all(webhooks.iter().map(ServiceInstance::kill)).await?;
    let went_on = phases.go_on(&fixture).await;
    let back = try_join_all(webhooks.iter().map(ServiceInstance::is_running)).await;
    restart(&fixture).await?;
    went_on?;
    ensure!(!back?.contains(&true), "a webhook came back by itself: this test has shown nothing");
    let _traffic = fixture.traffic();
    fixture.in_service(["after"]).await?;
    fixture.operator("c", "update").update("after", &fixture.images().v2).await
}

async fn one_webhook_is_down_in_each_phase(fixture: Arc<Fixture>) -> Result<()> {
    for webhook in fixture.podward()?.webhooks() {
        let phases = Phases::set_up(&fixture, webhook.kind().as_str()).await?;
        webhook.stop().await?;
        let went_on = phases.go_on(&fixture).await;
        restart(&fixture).await?;
        went_on?;
    }
    Ok(())
}

async fn restart(fixture: &Fixture) -> Result<()> {
    try_join_all(fixture.podward()?.webhooks().iter().map(ServiceInstance::start)).await?;
    fixture.podward()?.until_webhooks_are_called().await
}
