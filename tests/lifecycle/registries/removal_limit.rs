//! The removal limit.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_api::discovery_binding::RELEASE_REMOVALS_ANNOTATION;
use podward_e2e::{Fixture, Test};
use podward_registries::{Change, Instance, Owner};
use podward_support::{WAIT, within};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_removal_limit", limited)]
}

/// Instances of pods that nobody saw end are removed only within the limit, or when somebody releases them.
async fn limited(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    let ours = bound.of_pod("a").await?.pop().context("no instance")?;
    let owner = ours.owner().context("no mark")?;
    // As if the pods had ended while no bridge ran.
    let ghosts: Vec<Instance> = (0..4)
        .map(|number| {
            let mut ghost = ours.clone();
            let uid = format!("ghost-{number}");
            Owner { pod: uid.clone(), uid: uid.clone(), ..owner.clone() }.mark(&mut ghost.metadata);
            Instance { id: uid, host: format!("192.0.2.{number}"), version: None, ..ghost }
        })
        .collect();
    let changes: Vec<Change> =
        ghosts.iter().map(|ghost| Change::Register(bound.service.clone(), ghost.clone())).collect();
    let written = bound.registry.write(&changes).await;
    ensure!(written.iter().all(Result::is_ok), "{written:?}");
    let held = async {
        loop {
            let status = bound.api().get("web").await?.status.unwrap_or_default();
            if let Some(held) = status.held_removals.filter(|held| held.count == 4) {
                return anyhow::Ok(held);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let held = within(WAIT, || "the removals to be held".to_owned(), held).await?;
    ensure!(held.reason.contains("4 of 5 instances"), "{held:?}");
    ensure!(bound.instances(0).await?.len() == 5, "an instance was removed");
    bound.until_condition("Synchronized", "False").await?;
    let release = ["release", "discoverybinding/web", "--dry-run"];
    let said = fixture.plugin(&release).await?.succeeded()?.said;
    ensure!(said.contains("holds 4 removals") && said.contains("would release them"), "{said}");
    ensure!(bound.instances(0).await?.len() == 5, "a dry run has released them");
    let said = fixture.plugin(&release[..2]).await?.succeeded()?.said;
    ensure!(said.contains("released them"), "{said}");
    let released = bound.api().get("web").await?.annotations().get(RELEASE_REMOVALS_ANNOTATION).cloned();
    ensure!(released.as_ref() == Some(&held.id), "{released:?} is released instead of {held:?}");
    bound.until("only the pod is left", |found| found.len() == 1).await?;
    bound.until_condition("Synchronized", "True").await?;
    let said = fixture.plugin(&release[..2]).await?.succeeded()?.said;
    ensure!(said.contains("holds no removals"), "{said}");
    bound.end().await
}
