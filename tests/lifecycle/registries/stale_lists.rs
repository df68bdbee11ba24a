//! Lists of a registry that are older than the binding says.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use podward_e2e::{Fixture, Test};
use podward_support::pods;
use registry_servers::{EurekaServer, EurekaServerOptions};
use serde_json::json;

use super::bound::Bound;

/// The age of lists of the server. The binding says one second.
const LIST_AGE: Duration = Duration::from_secs(20);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_list_that_is_too_old_holds_a_pod", too_old)]
}

async fn too_old(fixture: Arc<Fixture>) -> Result<()> {
    let server = EurekaServer::start_with(EurekaServerOptions { response_cache: Some(LIST_AGE) }).await?;
    let change = json!({
        "clientCacheSeconds": 1,
        "registry": {"connection": {"eureka": {"responseCacheSeconds": 1}}},
    });
    let bound = Bound::new(fixture.clone(), "Eureka", vec![server.url()], change).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    bound.until("the pod is in service", |found| found.iter().any(|instance| instance.in_service)).await?;
    until_lists_are_new().await?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let says = format!("the list at {} still shows", server.url());
    let is_explained = |pod: &Pod| pods::describe(pod).contains(&says);
    fixture.feed().until("a", "its condition names the list", is_explained).await?;
    operator.await_operate("a").await?;
    let listed = bound.in_service("a").await?;
    ensure!(listed != Some(true), "the pod may be updated, and the list shows it in service");
    operator.finish("a").await?;
    operator.await_end("a").await?;
    bound.end().await
}

/// Waits until Eureka has just made its lists: it does so when the time since the Unix epoch is a multiple of their age.
async fn until_lists_are_new() -> Result<()> {
    let now = u64::try_from(Timestamp::now().as_millisecond()).context("the clock is before 1970")?;
    let age = u64::try_from(LIST_AGE.as_millis())?;
    tokio::time::sleep(Duration::from_millis(age - now % age + 500)).await;
    Ok(())
}
