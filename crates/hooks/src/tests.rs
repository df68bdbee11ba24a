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
use podward_core::hooks::{HookAnswer, HookAnswers, HookPhase, HookQuestion};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{HookArgs, HookCalls, HookMetrics, HookObservers, HookProbe};
use api_server::ApiServer;
use podward_kube_util::CachedPod;
use podward_kube_util::watched::WatchMetrics;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};

/// No test waits for longer: it has failed then.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a dialer that refuses loopback addresses, for the hooks of namespaces.
pub(super) fn dialer() -> GuardedDialer {
    GuardedDialer::new(AddressPolicy::new(&[], ApiServerAddresses::fixed([])))
}

/// A running engine.
struct Fixture {
    api: ApiServer,
    hook_calls: HookCalls,
    woken: Pin<Box<dyn Stream<Item = ObjectRef<CachedPod>> + Send>>,
    metrics: HookMetrics,
    watches: WatchMetrics,
    stop: CancellationToken,
    _store: Writer<CachedPod>,
}

impl Fixture {
    /// With the namespace `shop` and `pods` in it.
    fn start(api: ApiServer, args: HookArgs, pods: &[Arc<CachedPod>]) -> Fixture {
        let (store, mut writer) = reflector::store();
        writer.apply_watcher_event(&watcher::Event::Init);
        // One is always there, so that somebody is woken when the hooks come to be known.
        for pod in pods.iter().chain([&pod("known")]) {
            writer.apply_watcher_event(&watcher::Event::InitApply((**pod).clone()));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let (metrics, stop) = (HookMetrics::default(), CancellationToken::new());
        let observers = HookObservers { metrics: metrics.clone(), ..HookObservers::default() };
        let watches = observers.watches.clone();
        let (hook_calls, woken) =
            HookCalls::start(api.client(), args, dialer(), store, observers, stop.clone());
        Fixture { api, hook_calls, woken: Box::pin(woken), metrics, watches, stop, _store: writer }
    }

    /// With these hooks, which are known when it returns.
    async fn with(hooks: &[Value], pods: &[Arc<CachedPod>]) -> Fixture {
        let api = ApiServer::new();
        api.put_namespace("shop", json!({"team": "web"}));
        hooks.iter().for_each(|hook| api.put_hook(hook.clone()));
        let mut fixture = Fixture::start(api, HookArgs::default(), pods);
        let probe = pod("known");
        fixture.until(|fixture| fixture.hook_calls.hooks_for(&probe).is_some()).await;
        fixture
    }

    /// Waits until this is so, looking again with each pod that is woken.
    async fn until(&mut self, is_so: impl Fn(&Fixture) -> bool) {
        let wait = async {
            while !is_so(self) {
                self.woken.next().await.expect("the stream ended");
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait).await.expect("it never came to be so");
    }

    fn answer(&self, pod: &CachedPod, question: &HookQuestion) -> Option<HookAnswer> {
        self.hook_calls.answers(pod.uid()).answer(question)
    }

    /// Asks, and waits for DONE; gives the detail of the evidence.
    async fn ask_until_done(&mut self, pod: &Arc<CachedPod>, question: &HookQuestion) -> String {
        self.hook_calls.ask(pod, std::slice::from_ref(question));
        self.until(|fixture| matches!(fixture.answer(pod, question), Some(HookAnswer::Done(_)))).await;
        match self.answer(pod, question) {
            Some(HookAnswer::Done(evidence)) => evidence.detail,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and waits until it is reported what is in the way.
    async fn ask_until_reported(&mut self, pod: &Arc<CachedPod>, question: &HookQuestion) -> String {
        self.hook_calls.ask(pod, std::slice::from_ref(question));
        self.until(|fixture| reported(fixture.answer(pod, question)).is_some()).await;
        reported(self.answer(pod, question)).unwrap()
    }

    async fn stop(self) -> ApiServer {
        self.stop.cancel();
        self.hook_calls.stopped().await;
        self.api
    }
}

fn reported(answer: Option<HookAnswer>) -> Option<String> {
    match answer {
        Some(HookAnswer::Open { message }) if !message.is_empty() => Some(message),
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

fn question(hook: &str) -> HookQuestion {
    HookQuestion {
        hook: hook.to_owned(),
        phase: HookPhase::Prepare,
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
