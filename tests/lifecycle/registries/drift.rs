//! Changes that others make to a registry.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_registries::{Change, Instance};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_foreign_edits_are_repaired", repaired),
        Test::simulated("registry_data_loss_is_repaired", data_loss),
    ]
}

async fn repaired(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    let before = bound.of_pod("a").await?.pop().context("no instance")?;
    let is_as_before = |found: &[Instance]| {
        found.len() == 1
            && found[0].in_service
            && found[0].metadata == before.metadata
            && found[0].id == before.id
    };
    let mut edited = before.clone();
    edited.metadata.insert("pod".to_owned(), "edited".to_owned());
    let out = Instance { in_service: false, ..before.clone() };
    let service = || bound.service.clone();
    for edit in [
        Change::Register(service(), edited),
        Change::SetInService(service(), out),
        Change::Deregister(service(), before.clone()),
    ] {
        // The version is that of the last repair.
        let now = bound.of_pod("a").await?.pop().context("no instance")?;
        let edit = match edit {
            Change::Register(service, instance) => {
                Change::Register(service, Instance { version: now.version, ..instance })
            }
            Change::SetInService(service, instance) => {
                Change::SetInService(service, Instance { version: now.version, ..instance })
            }
            Change::Deregister(service, instance) => {
                Change::Deregister(service, Instance { version: now.version, ..instance })
            }
        };
        let written = bound.registry.write(std::slice::from_ref(&edit)).await;
        ensure!(written.iter().all(Result::is_ok), "{edit}: {written:?}");
        bound.until("the instance is as before", is_as_before).await.with_context(|| edit.to_string())?;
    }
    bound.end().await
}

async fn data_loss(fixture: Arc<Fixture>) -> Result<()> {
    let mut server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    for pod in ["a", "b", "c"] {
        bound.create(pod).await?;
    }
    for pod in ["a", "b", "c"] {
        fixture.until_available(pod).await?;
    }
    server.process.restart_empty().await?;
    let all = |found: &[Instance]| found.iter().filter(|instance| instance.in_service).count() == 3;
    bound.until("all pods are registered again", all).await?;
    bound.until_condition("Synchronized", "True").await?;
    bound.end().await
}
