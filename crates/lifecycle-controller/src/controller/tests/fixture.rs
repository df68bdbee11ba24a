//! The parts of a leader that does not watch pods, for tests that call them one by one.

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use kube::runtime::reflector::{ObjectRef, Store};
use podward_deletion::{Deletions, LostNodes};
use podward_hooks::{HookArgs, HookCalls, HookObservers};
use podward_kube_util::watched::Watch;
use podward_kube_util::{CachedPod, Events};
use podward_rules::{RuleObservers, Rules};
use podward_runtime::admin::ReadinessCondition;
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Spans;
use podward_traces::OperationTraces;
use tokio_util::sync::CancellationToken;

use super::api_server::ApiServer;
use super::dialer;
use crate::context::Context;
use crate::deciders::Deciders;
use crate::drain_turns::DrainTurns;
use crate::report::{Metrics, Report};

/// Returns the context of a leader whose watch of pods fills `store`, and the pods that are woken because what they
/// wait for has changed.
pub(super) fn context(
    server: &ApiServer,
    store: &Store<CachedPod>,
) -> (Context, impl Stream<Item = ObjectRef<CachedPod>> + Unpin) {
    let (client, metrics, stop) = (server.client(), Arc::new(Metrics::new()), CancellationToken::new());
    let traces = OperationTraces::new(Spans::none());
    let events = Events::start(client.clone(), "test", "test", metrics.events.clone());
    let observers = RuleObservers {
        metrics: metrics.rules.clone(),
        watches: metrics.watches.clone(),
        events: events.clone(),
        traces: traces.clone(),
    };
    let (rules, _) = Rules::start(client.clone(), "test", store.clone(), observers, dialer(), stop.clone());
    let (hooks, _) = HookCalls::start(
        client.clone(),
        HookArgs::default(),
        dialer(),
        store.clone(),
        HookObservers {
            metrics: metrics.callbacks.clone(),
            traces: traces.clone(),
            ..HookObservers::default()
        },
        stop.clone(),
    );
    let watch = Watch {
        name: "nodes",
        listed: ReadinessCondition::default(),
        metrics: metrics.watches.clone(),
        may_be_absent: false,
        stop,
    };
    let limit = Duration::from_secs(60);
    let (lost_nodes, _) = LostNodes::follow(client.clone(), watch, limit, store.clone());
    let (deletions, woken) = Deletions::new(client.clone(), lost_nodes, metrics.deletions.clone());
    let deciders = Deciders { hooks, deletions, rules, max_busy: limit };
    let report = Report::new(events, metrics.clone(), traces);
    let (drain_turns, _) = DrainTurns::new(metrics);
    (Context::new(client, deciders, drain_turns, report, Progress::default()), Box::pin(woken))
}
