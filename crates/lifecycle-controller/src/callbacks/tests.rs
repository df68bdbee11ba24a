//! The engine against real hook servers (gRPC over TLS) and an API server in memory.

mod api_server;
mod attachments;
mod calls;
mod cluster;
mod faults;
mod hook_server;
mod lifecycle;
mod statuses;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::reflector::{self, ObjectRef, store::Writer};
use kube::runtime::watcher;
use podward_core::UnixNanos;
use podward_core::hooks::{Answer, Answers, Phase, Question};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Callbacks, HookArgs, HookMetrics};
use crate::cached_pod::CachedPod;
use crate::traces::Traces;
use api_server::ApiServer;

/// No test waits for longer: it has failed then.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running engine.
struct Rig {
    api: ApiServer,
    callbacks: Callbacks,
    woken: Pin<Box<dyn Stream<Item = ObjectRef<CachedPod>> + Send>>,
    metrics: HookMetrics,
    stop: CancellationToken,
    _store: Writer<CachedPod>,
}

impl Rig {
    /// With the namespace `shop` and `pods` in it.
    fn start(api: ApiServer, args: HookArgs, pods: &[Arc<CachedPod>]) -> Rig {
        let (store, mut writer) = reflector::store();
        writer.apply_watcher_event(&watcher::Event::Init);
        // One is always there, so that somebody is woken when the hooks come to be known.
        for pod in pods.iter().chain([&pod("known")]) {
            writer.apply_watcher_event(&watcher::Event::InitApply((**pod).clone()));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let (metrics, stop) = (HookMetrics::default(), CancellationToken::new());
        let (traces, client) = (Traces::default(), api.client());
        let (callbacks, woken) = Callbacks::start(client, args, store, metrics.clone(), traces, stop.clone());
        Rig { api, callbacks, woken: Box::pin(woken), metrics, stop, _store: writer }
    }

    /// With these hooks, which are known when it returns.
    async fn with(hooks: &[Value], pods: &[Arc<CachedPod>]) -> Rig {
        let api = ApiServer::new();
        api.put_namespace("shop", json!({"team": "web"}));
        hooks.iter().for_each(|hook| api.put_hook(hook.clone()));
        let mut rig = Rig::start(api, HookArgs::default(), pods);
        let probe = pod("known");
        rig.until(|rig| rig.callbacks.hooks_for(&probe).is_some()).await;
        rig
    }

    /// Waits until this is so, looking again with each pod that is woken.
    async fn until(&mut self, is_so: impl Fn(&Rig) -> bool) {
        let wait = async {
            while !is_so(self) {
                self.woken.next().await.expect("the stream ended");
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("it never came to be so");
    }

    fn answer(&self, pod: &CachedPod, question: &Question) -> Option<Answer> {
        self.callbacks.answers(pod.uid()).answer(question)
    }

    /// Asks, and waits for DONE; gives the detail of the evidence.
    async fn ask_until_done(&mut self, pod: &Arc<CachedPod>, question: &Question) -> String {
        self.callbacks.ask(pod, std::slice::from_ref(question));
        self.until(|rig| matches!(rig.answer(pod, question), Some(Answer::Done(_)))).await;
        match self.answer(pod, question) {
            Some(Answer::Done(evidence)) => evidence.detail,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and waits until it is told what is in the way.
    async fn ask_until_told(&mut self, pod: &Arc<CachedPod>, question: &Question) -> String {
        self.callbacks.ask(pod, std::slice::from_ref(question));
        self.until(|rig| told(rig.answer(pod, question)).is_some()).await;
        told(self.answer(pod, question)).unwrap()
    }

    async fn stop(self) -> ApiServer {
        self.stop.cancel();
        self.callbacks.stopped().await;
        self.api
    }
}

fn told(answer: Option<Answer>) -> Option<String> {
    match answer {
        Some(Answer::Open { message }) if !message.is_empty() => Some(message),
        _ => None,
    }
}

/// A pod of the namespace `shop`.
fn pod(name: &str) -> Arc<CachedPod> {
    let value = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"}},
        "status": {"podIPs": [{"ip": "10.0.0.7"}]},
    });
    Arc::new(serde_json::from_value(value).unwrap())
}

fn question(hook: &str) -> Question {
    Question {
        hook: hook.to_owned(),
        phase: Phase::Prepare,
        operations: vec![("op".to_owned(), "update".to_owned())],
        since: UnixNanos(1),
        deadline: UnixNanos(i64::MAX),
    }
}

/// The LifecycleHook `name`, with `spec` on top of what every one needs.
fn hook(name: &str, spec: Value) -> Value {
    let mut hook = json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook",
        "metadata": {"name": name}, "spec": {"phases": ["Prepare", "Complete"]},
    });
    hook["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    hook
}
