//! A thousand hooks.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use podward_api::LifecycleHook;
use podward_e2e::{Scene, Test};
use podward_support::{Kind, within};
use serde_json::{Value, json};

use super::server::{HookServer, has, put, unique, until_status};
use crate::controllers::leader;

const HOOKS: usize = 1_000;
/// Of every so many one has an endpoint, where nobody is; the others wait to be attached to.
const WITH_ENDPOINT: usize = 10;
/// How much more of memory a service may take for all of them, in bytes.
const BOUND: u64 = 40 << 20;
/// How long an operation may take with all of them there.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::alone("a_thousand_hooks", a_thousand_hooks)]
}

/// A thousand that are for other pods, and one that is for every pod there is: an operation goes its way.
async fn a_thousand_hooks(scene: Arc<Scene>) -> Result<()> {
    let hook = HookServer::start(&scene, "everything").await?;
    scene.create("before").await?;
    scene.until_available("before").await?;
    let kinds = [Kind::LifecycleController, Kind::MutatingWebhook];
    let podward = scene.podward()?;
    let services: Vec<_> = kinds.into_iter().flat_map(|kind| podward.services(kind)).collect();
    let memory = async || {
        let mut all = Vec::new();
        for service in &services {
            all.push(service.memory().await?);
        }
        Ok::<_, anyhow::Error>(all)
    };
    let before = memory().await?;
    let hooks: Api<LifecycleHook> = Api::all(scene.client());
    let prefix = unique("many");
    let name = |number: usize| format!("{prefix}-{number}");
    let make = |number: usize| {
        let (hooks, name, scene) = (&hooks, name(number), &scene);
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
        async move { put(hooks, &name, scene.namespace(), endpoint, spec).await.map(drop) }
    };
    stream::iter(0..HOOKS).map(make).buffer_unordered(16).try_collect::<()>().await?;
    // It has no selector: it is for every pod that has opted in.
    hook.put_reachable(
        json!({"namespaceSelector": {}, "phases": ["PreCheck", "Prepare", "PostCheck", "Complete"]}),
    )
    .await?;
    let nobody = |status: &_| has(status, "Reachable", "False");
    until_status(&hooks, &name(HOOKS - 1), "the last of them is known", nobody).await?;

    scene.create("after").await?;
    scene.until_available("after").await?;
    for pod in ["before", "after"] {
        let operator = scene.operator("a", "update");
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
    let leader = leader(&scene).await?;
    ensure!(leader.is_running().await?, "the leader is gone");
    for (service, (before, after)) in services.iter().zip(before.iter().zip(&after)) {
        let grown = after.saturating_sub(*before);
        eprintln!("{}: {} MiB before, {} MiB after {HOOKS} hooks", service.name(), before >> 20, after >> 20);
        ensure!(grown < BOUND, "{} has grown by {} MiB", service.name(), grown >> 20);
    }
    hook.delete().await.context("delete the hook for everything")
}
