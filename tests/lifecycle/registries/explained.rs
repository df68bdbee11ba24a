//! What people see of a registry that does not answer: events, `kubectl podward why` and `kubectl podward doctor`.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use podward_e2e::{Fixture, Test};
use podward_support::{WAIT, pods, within};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::{Value, json};

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_down_is_explained", down)]
}

async fn down(fixture: Arc<Fixture>) -> Result<()> {
    let mut server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    // Another replica may begin to lead meanwhile: then the hook is not attached for a moment.
    let nothing = async {
        while !of_this_test(&fixture).await?.is_empty() {}
        Ok(())
    };
    within(WAIT, || "the doctor to find nothing while the registry answers".to_owned(), nothing).await?;
    server.process.stop().await?;
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    let address = server.url().trim_start_matches("http://").to_owned();

    let said = fixture.until_event("web", "RegistryUnreachable").await?;
    ensure!(said.contains(&address), "the event of the binding does not name the address: {said}");
    let said = fixture.until_event("a", "RegistryUnreachable").await?;
    let waits = format!("waits for the registry of DiscoveryBinding {}/web", fixture.namespace());
    ensure!(said.contains(&waits) && said.contains(&address), "{said}");

    let explains = |pod: &k8s_openapi::api::core::v1::Pod| pods::describe(pod).contains(&address);
    fixture.feed().until("a", "its condition names the registry", explains).await?;
    let why = fixture.plugin(&["why", "a"]).await?.said;
    for words in [
        format!("hook {0}.web is DiscoveryBinding {0}/web", fixture.namespace()),
        format!("Consul at {}", server.url()),
        "does not answer since ".to_owned(),
        format!("-> kubectl -n {} describe discoverybinding web", fixture.namespace()),
    ] {
        ensure!(why.contains(&words), "{words} is not in: {why}");
    }
    let is_it = |finding: &Value| {
        finding["level"] == "failed" && finding["what"].as_str().is_some_and(|what| what.contains(&address))
    };
    let found = async {
        while !of_this_test(&fixture).await?.iter().any(is_it) {}
        Ok(())
    };
    within(WAIT, || "the doctor to find that the registry does not answer".to_owned(), found).await?;

    server.process.restart_empty().await?;
    operator.await_operate("a").await?;
    operator.finish("a").await?;
    operator.await_end("a").await?;
    fixture.until_event("web", "RegistryReachable").await?;
    bound.end().await
}

/// Returns what the doctor finds about the bindings of this test.
async fn of_this_test(fixture: &Fixture) -> Result<Vec<Value>> {
    // The services run as processes: the namespace does not matter.
    let said = fixture.plugin(&["doctor", "--output=json"]).await?.said;
    let begin = said.find('{').with_context(|| format!("no report: {said}"))?;
    let mut reports = serde_json::Deserializer::from_str(&said[begin..]).into_iter::<Value>();
    let report = reports.next().context("no report")?.with_context(|| format!("read {said}"))?;
    let checks = report["checks"].as_array().with_context(|| format!("no checks in {report}"))?;
    let of_registries = checks.iter().find(|check| check["name"] == "service registries");
    let of_registries = of_registries.with_context(|| format!("no check of registries in {report}"))?;
    let findings = of_registries["findings"].as_array().context("no findings")?;
    let ours = format!("DiscoveryBinding {}/web", fixture.namespace());
    let is_ours = |finding: &&Value| finding["what"].as_str().is_some_and(|what| what.contains(&ours));
    Ok(findings.iter().filter(is_ours).cloned().collect())
}
