//! Each process of Podward is killed while pods wait in each phase, and everything goes on without it.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use podward_e2e::{Scene, Service, Test};
use podward_support::Kind;

use super::held::Held;
use crate::controllers::leader;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("chaos_leader_killed", |scene| killed(scene, Victim::Leader)),
        Test::alone("chaos_standby_killed", |scene| killed(scene, Victim::Standby)),
        Test::alone("chaos_mutating_webhook_killed", |scene| {
            killed(scene, Victim::Of(Kind::MutatingWebhook))
        }),
        Test::alone("chaos_validating_webhook_killed", |scene| {
            killed(scene, Victim::Of(Kind::ValidatingWebhook))
        }),
        Test::alone("chaos_everything_killed", everything_killed),
    ]
}

#[derive(Clone, Copy)]
enum Victim {
    Leader,
    Standby,
    Of(Kind),
}

async fn killed(scene: Arc<Scene>, victim: Victim) -> Result<()> {
    let held = Held::set_up(&scene).await?;
    let leader = leader(&scene).await?;
    let mut services = match victim {
        Victim::Leader | Victim::Standby => scene.podward()?.services(Kind::LifecycleController),
        Victim::Of(kind) => scene.podward()?.services(kind),
    };
    services.retain(|service| match victim {
        Victim::Leader => service.name() == leader.name(),
        Victim::Standby => service.name() != leader.name(),
        Victim::Of(_) => true,
    });
    let counts = held.counts();
    let service = services.first().context("there is nobody to kill")?;
    service.kill().await?;
    let went_on = async {
        if matches!(victim, Victim::Leader) {
            // Whoever leads next knows nothing but what is on the pods.
            held.until_asked_again(&counts).await?;
        }
        held.ensure_held(&scene)?;
        held.go_on(&scene).await
    };
    let went_on = went_on.await;
    start(&scene, &services).await?;
    went_on?;
    after(&scene).await
}

/// For a moment there is nothing of Podward left but what is on the pods.
async fn everything_killed(scene: Arc<Scene>) -> Result<()> {
    let held = Held::set_up(&scene).await?;
    let mut services = scene.podward()?.services(Kind::LifecycleController);
    services.extend(scene.podward()?.webhooks());
    let counts = held.counts();
    try_join_all(services.iter().map(Service::kill)).await?;
    let is_held = held.ensure_held(&scene);
    start(&scene, &services).await?;
    is_held?;
    held.until_asked_again(&counts).await?;
    held.ensure_held(&scene)?;
    held.go_on(&scene).await?;
    after(&scene).await
}

async fn start(scene: &Scene, services: &[Service]) -> Result<()> {
    try_join_all(services.iter().map(Service::start)).await?;
    scene.podward()?.until_webhooks_are_asked().await
}

/// Podward works as before.
async fn after(scene: &Scene) -> Result<()> {
    scene.create("after").await?;
    scene.until_available("after").await?;
    scene.operator("b", "update").update("after", &scene.images().v2).await
}
