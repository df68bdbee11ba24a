//! Each process of Podward is killed while pods wait in each phase, and everything continues.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use podward_e2e::{Fixture, ServiceInstance, Test};
use podward_support::ServiceKind;

use super::waiting_pods::HeldPods;
use crate::controllers::leader;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("chaos_leader_killed", |fixture| killed(fixture, Victim::Leader)),
        Test::alone("chaos_standby_killed", |fixture| killed(fixture, Victim::Standby)),
        Test::alone("chaos_mutating_webhook_killed", |fixture| {
            killed(fixture, Victim::Of(ServiceKind::MutatingWebhook))
        }),
        Test::alone("chaos_validating_webhook_killed", |fixture| {
            killed(fixture, Victim::Of(ServiceKind::ValidatingWebhook))
        }),
        Test::alone("chaos_everything_killed", everything_killed),
    ]
}

#[derive(Clone, Copy)]
enum Victim {
    Leader,
    Standby,
    Of(ServiceKind),
}

async fn killed(fixture: Arc<Fixture>, victim: Victim) -> Result<()> {
    let held = HeldPods::set_up(&fixture).await?;
    let leader = leader(&fixture).await?;
    let mut services = match victim {
        Victim::Leader | Victim::Standby => fixture.podward()?.services(ServiceKind::LifecycleController),
        Victim::Of(kind) => fixture.podward()?.services(kind),
    };
    services.retain(|service| match victim {
        Victim::Leader => service.name() == leader.name(),
        Victim::Standby => service.name() != leader.name(),
        Victim::Of(_) => true,
    });
    let counts = held.counts();
    let service = services.first().context("there is no process to kill")?;
    service.kill().await?;
    let went_on = async {
        if matches!(victim, Victim::Leader) {
            // The next leader only knows what is stored on the pods.
            held.until_called_again(&counts).await?;
        }
        held.ensure_held(&fixture)?;
        held.go_on(&fixture).await
    };
    let went_on = went_on.await;
    start(&fixture, &services).await?;
    went_on?;
    after(&fixture).await
}

/// For a moment no process of Podward runs. Only what is stored on the pods remains.
async fn everything_killed(fixture: Arc<Fixture>) -> Result<()> {
    let held = HeldPods::set_up(&fixture).await?;
    let mut services = fixture.podward()?.services(ServiceKind::LifecycleController);
    services.extend(fixture.podward()?.webhooks());
    let counts = held.counts();
    try_join_all(services.iter().map(ServiceInstance::kill)).await?;
    let is_held = held.ensure_held(&fixture);
    start(&fixture, &services).await?;
    is_held?;
    held.until_called_again(&counts).await?;
    held.ensure_held(&fixture)?;
    held.go_on(&fixture).await?;
    after(&fixture).await
}

async fn start(fixture: &Fixture, services: &[ServiceInstance]) -> Result<()> {
    try_join_all(services.iter().map(ServiceInstance::start)).await?;
    fixture.podward()?.until_webhooks_are_called().await
}

/// Checks that Podward works as before.
async fn after(fixture: &Fixture) -> Result<()> {
    fixture.create("after").await?;
    fixture.until_available("after").await?;
    fixture.operator("b", "update").update("after", &fixture.images().v2).await
}
