//! Traces of answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_core::trace::trace_of;
use podward_e2e::{Collected, Fixture, Test};
use podward_support::{WAIT, within};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("registry_answers_are_in_the_trace", traced)]
}

const BRIDGE: &str = "service-discovery-bridge";

/// The answers of the bridge, its calls to the registry and its wait for clients are in the trace of the operation.
async fn traced(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let change = json!({"clientCacheSeconds": 3});
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], change).await?;
    bound.create("a").await?;
    fixture.until_available("a").await?;
    let uid = fixture.feed().get("a").and_then(|pod| pod.uid()).context("pod a has no UID")?;
    let operator = fixture.operator("traced", "update");
    operator.begin("a").await?;
    operator.await_operate("a").await?;
    operator.finish("a").await?;
    operator.await_end("a").await?;

    let answered = |spans: &[Collected], name: &str| {
        let is_done = |span: &Collected| span.attribute("podward.hook.outcome") == "DONE";
        spans.iter().any(|span| span.service == BRIDGE && span.span.name == name && is_done(span))
    };
    let ends_a_wait = |wait: &Collected, answer: &Collected| {
        let is_done = answer.attribute("podward.hook.outcome") == "DONE";
        wait.span.name == "wait for clients" && answer.span.span_id == wait.span.parent_span_id && is_done
    };
    let all = |spans: &[Collected]| {
        spans.iter().any(|wait| spans.iter().any(|answer| ends_a_wait(wait, answer)))
            && answered(spans, "answer COMPLETE")
            && spans.iter().any(|span| span.span.parent_span_id.is_empty())
    };
    let collected = fixture.collector()?.until(trace_of(&uid, "traced").0, all);
    let spans = within(WAIT, || "the answers of the bridge in the trace".to_owned(), collected).await?;
    let of_bridge: Vec<&Collected> = spans.iter().filter(|span| span.service == BRIDGE).collect();
    let called = |id: &[u8]| spans.iter().find(|span| span.span.span_id == id);
    for answer in of_bridge.iter().filter(|span| span.span.name.starts_with("answer ")) {
        let call = called(&answer.span.parent_span_id).context("an answer is no child of a call")?;
        ensure!(call.span.name.starts_with("hook "), "{answer:#?} is a child of {call:#?}");
        let binding = format!("{}/web", fixture.namespace());
        ensure!(answer.attribute("podward.binding") == binding, "{answer:#?}");
        ensure!(answer.attribute("podward.registry.kind") == "Consul", "{answer:#?}");
        ensure!(answer.attribute("podward.registry.service") == bound.service.name, "{answer:#?}");
        ensure!(!answer.attribute("podward.registry.instance").is_empty(), "{answer:#?}");
    }
    let done = of_bridge.iter().filter(|span| span.attribute("podward.hook.outcome") == "DONE");
    for answer in done {
        ensure!(!answer.attribute("podward.evidence").is_empty(), "{answer:#?}");
    }
    for name in ["registry write", "registry read", "wait for clients"] {
        let found = of_bridge.iter().find(|span| span.span.name == name);
        let found = found.with_context(|| format!("no span {name}: {of_bridge:#?}"))?;
        let parent = called(&found.span.parent_span_id).context("a span has no parent")?;
        ensure!(parent.span.name.starts_with("answer "), "{found:#?} is a child of {parent:#?}");
    }
    let took = |span: &Collected| {
        Duration::from_nanos(span.span.end_time_unix_nano.saturating_sub(span.span.start_time_unix_nano))
    };
    let waits = of_bridge.iter().filter(|span| span.span.name == "wait for clients");
    let longest = waits.map(|span| took(span)).max().unwrap_or_default();
    let cache = Duration::from_secs(3);
    ensure!(longest.abs_diff(cache) < Duration::from_millis(100), "waited {longest:?} of {cache:?}");
    bound.end().await
}
