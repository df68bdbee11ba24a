//! Registries that answer with errors, slowly, or not at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use podward_core::keys::Stage;
use podward_e2e::{Fixture, Test};
use podward_registries::Instance;
use podward_support::{Operator, pods};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::{Bound, client};
use super::faulty_proxy::{Fault, FaultyProxy};

/// The timeout of calls to the registry that stalls.
const LONG_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_that_answers_500_or_slowly", errors),
        Test::simulated("registry_that_stalls_delays_nobody_else", stalled),
        Test::simulated("registry_that_refuses_a_part_of_a_batch", partial_batch),
    ]
}

/// Nothing follows from errors: a removal waits until the registry shows it, and nothing is removed. A slow registry only
/// takes longer.
async fn errors(fixture: Arc<Fixture>) -> Result<()> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let proxy = FaultyProxy::start(&server.url()).await?;
    let mut bound = Bound::new(fixture.clone(), "Consul", vec![proxy.url()], json!({})).await?;
    bound.registry = client("Consul", &[server.url()], None)?;
    bound.create("a").await?;
    fixture.until_available("a").await?;

    proxy.set(Fault::Answers500);
    let operator = fixture.operator("up", "update");
    operator.begin("a").await?;
    bound.create("b").await?;
    let message = bound.until_condition("Reachable", "False").await?;
    ensure!(message.contains("500"), "the message does not name the status: {message}");
    for pod in ["a", "b"] {
        let explains = |pod: &Pod| pods::describe(pod).contains("500");
        fixture.feed().until(pod, "its condition names the status", explains).await?;
    }
    ensure!(
        !may_operate(&fixture, &operator, "a")?,
        "the pod may be updated, and nobody knows what is shown"
    );
    ensure!(bound.in_service("a").await? == Some(true), "a change arrived that was answered with 500");
    ensure!(bound.in_service("b").await?.is_none(), "b is registered");

    proxy.set(Fault::Slow(Duration::from_millis(500)));
    operator.await_operate("a").await?;
    ensure!(bound.in_service("a").await? == Some(false), "the pod may be updated, and is in service");
    operator.finish("a").await?;
    operator.await_end("a").await?;
    fixture.until_available("b").await?;
    for pod in ["a", "b"] {
        ensure!(bound.in_service(pod).await? == Some(true), "{pod} is available, and not in service");
    }
    bound.until_condition("Reachable", "True").await?;
    proxy.set(Fault::None);
    bound.end().await
}

/// The calls of one binding wait for its registry for up to 30 s. The operations on pods of another one go on meanwhile.
async fn stalled(fixture: Arc<Fixture>) -> Result<()> {
    let servers = tokio::try_join!(
        ConsulServer::start(ConsulServerOptions::default()),
        ConsulServer::start(ConsulServerOptions::default()),
    )?;
    let proxy = FaultyProxy::start(&servers.0.url()).await?;
    let patient = json!({"registry": {"connection": {"timeoutSeconds": LONG_TIMEOUT.as_secs()}}});
    let slow = Bound::start_named(fixture.clone(), "slow", "Consul", vec![proxy.url()], None, patient);
    let slow = slow.await?;
    slow.until_condition("Synchronized", "True").await?;
    let fast = Bound::new(fixture.clone(), "Consul", vec![servers.1.url()], json!({})).await?;
    slow.create("of-slow").await?;
    fast.create("of-fast").await?;
    for pod in ["of-slow", "of-fast"] {
        fixture.until_available(pod).await?;
    }

    proxy.set(Fault::Stalled);
    let operator = fixture.operator("up", "update");
    operator.begin("of-slow").await?;
    let begin = Instant::now();
    for _ in 0..3 {
        operator.begin("of-fast").await?;
        operator.await_operate("of-fast").await?;
        ensure!(
            fast.in_service("of-fast").await? == Some(false),
            "the pod may be updated, and is in service"
        );
        operator.finish("of-fast").await?;
        operator.await_end("of-fast").await?;
    }
    let took = begin.elapsed();
    ensure!(took < LONG_TIMEOUT, "three operations took {took:?}, as long as a call to the other registry");
    ensure!(!may_operate(&fixture, &operator, "of-slow")?, "the registry cannot show the removal");

    proxy.set(Fault::None);
    operator.await_operate("of-slow").await?;
    operator.finish("of-slow").await?;
    operator.await_end("of-slow").await?;
    fast.end().await?;
    slow.end().await
}

/// All changes of a batch are made but those that the registry does not accept.
async fn partial_batch(fixture: Arc<Fixture>) -> Result<()> {
    let mut server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let weight = json!({"weight": "${pod.labels['weight']:-1}"});
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], weight).await?;
    let all = ["a", "b", "c"];
    for pod in all {
        bound.create(pod).await?;
    }
    for pod in all {
        fixture.until_available(pod).await?;
    }
    // Consul has no such weight.
    fixture.label("b", &[("weight", Some("0"))]).await?;
    let message = bound.until_condition("Synchronized", "False").await?;
    ensure!(message.contains("pod b") && message.contains("the weight 0"), "{message}");
    ensure!(bound.in_service("b").await? == Some(true), "the instance is gone because of its new weight");
    server.process.restart_empty().await?;
    let weights = |found: &[Instance]| -> Vec<(String, f64)> {
        let mut weights: Vec<_> = found
            .iter()
            .filter(|instance| instance.in_service)
            .filter_map(|instance| Some((instance.owner()?.pod, instance.weight)))
            .collect();
        weights.sort_by(|one, other| one.0.cmp(&other.0));
        weights
    };
    let of = |pod: &str, weight: f64| (pod.to_owned(), weight);
    let others = vec![of("a", 1.0), of("c", 1.0)];
    bound.until("the others are registered again", |found| weights(found) == others).await?;
    fixture.label("b", &[("weight", Some("7"))]).await?;
    let with_b = vec![of("a", 1.0), of("b", 7.0), of("c", 1.0)];
    bound.until("it is registered with a weight that Consul has", |found| weights(found) == with_b).await?;
    bound.until_condition("Synchronized", "True").await?;
    bound.end().await
}

fn may_operate(fixture: &Fixture, operator: &Operator, pod: &str) -> Result<bool> {
    let pod = fixture.feed().get(pod).with_context(|| format!("pod {pod} is gone"))?;
    Ok(operator.has(&pod, Stage::Operate))
}
