//! A thousand hooks.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use podward_api::LifecycleHook;
use podward_e2e::{Fixture, Test};
use podward_support::{ServiceKind, within};
use serde_json::{Value, json};

use super::server::{HookServer, has, put, unique, until_status};
use crate::controllers::leader;

const HOOKS: usize = 1_000;
/// One of this number of hooks has an endpoint, where nothing listens. The others wait for a system to attach.
const WITH_ENDPOINT: usize = 10;
/// The limit for the additional memory of a service for all of them, in bytes.
const BOUND: u64 = 40 << 20;
/// The limit for the duration of an operation with all of them.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::alone("a_thousand_hooks", a_thousand_hooks)]
}

/// A thousand hooks for other pods, and one for all pods: an operation is not delayed.
async fn a_thousand_hooks(fixture: Arc<Fixture>) -> Result<()> {
    let hook = HookServer::start(&fixture, "everything").await?;
    fixture.create("before").await?;
    fixture.until_available("before").await?;
    let kinds = [ServiceKind::LifecycleController, ServiceKind::MutatingWebhook];
    let podward = fixture.podward()?;
    let services: Vec<_> = kinds.into_iter().flat_map(|kind| podward.services(kind)).collect();
    let memory = async || {
        let mut all = Vec::new();
        for service in &services {
            all.push(service.memory().await?);
        }
        Ok::<_, anyhow::Error>(all)
    };
    let before = memory().await?;
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let prefix = unique("many");
    let name = |number: usize| format!("{prefix}-{number}");
    let make = |number: usize| {
        let (hooks, name, fixture) = (&hooks, name(number), &fixture);
        let mut spec = json!({
            "podSelector": {"matchLabels": {"app": name}}, "phases": ["PreCheck", "Prepare", "Complete"],
        });
        let nowhere = json!({"url": "https://127.0.0.1:1"});
        let endpoint = if number.is_multiple_of(WITH_ENDPOINT) {
            nowhere
        } else {
            spec["attachment"] = json!({});
            Value::Null
        };
        async move { put(hooks, &name, fixture.namespace(), endpoint, spec).await.map(drop) }
    };
    stream::iter(0..HOOKS).map(make).buffer_unordered(16).try_collect::<()>().await?;
    // It has no selector, so it is for every pod that is opted in.
    hook.put_reachable(
        json!({"namespaceSelector": {}, "phases": ["PreCheck", "Prepare", "PostCheck", "Complete"]}),
    )
    .await?;
    let nobody = |status: &_| has(status, "Reachable", "False");
    until_status(&hooks, &name(HOOKS - 1), "the last of them is known", nobody).await?;

    fixture.create("after").await?;
    fixture.until_available("after").await?;
    for pod in ["before", "after"] {
        let operator = fixture.operator("a", "update");
        let operation = async {
            operator.begin(pod).await?;
            let granted = operator.await_operate(pod).await?;
            operator.finish(pod).await?;
            operator.await_end(pod).await?;
            Ok(granted)
        };
        within(SOON, || format!("an operation on pod {pod}"), operation).await?;
    }
    let asked = hook.log().asked;
    ensure!(asked.iter().any(|asked| asked.pod == "before"), "the hook for everything was not asked");
    let after = memory().await?;
    let leader = leader(&fixture).await?;
    ensure!(leader.is_running().await?, "the leader is gone");
    for (service, (before, after)) in services.iter().zip(before.iter().zip(&after)) {
        let grown = after.saturating_sub(*before);
        eprintln!("{}: {} MiB before, {} MiB after {HOOKS} hooks", service.name(), before >> 20, after >> 20);
        ensure!(grown < BOUND, "{} has grown by {} MiB", service.name(), grown >> 20);
    }
    hook.delete().await.context("delete the hook for everything")
}
