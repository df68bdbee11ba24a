//! The work of the leader: its watches and the reconciliations that they cause.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Config, Controller, Error as ControllerError};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_kube_util::watched::Watch;
use podward_runtime::address_policy::GuardedDialer;
use podward_runtime::admin::ReadinessCondition;
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Spans;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cleanup;
use crate::context::Context;
use crate::deciders::Deciders;
use crate::drain_turns::DrainTurns;
use crate::leader_pods::LeaderPods;
use crate::opted_out;
use crate::pod_watch::changed_pods;
use crate::reconcile::{on_error, reconcile};
use crate::report::{Metrics, Report};
use crate::service_watch::{ServiceName, changed_services};
use podward_deletion::{Deletions, KnownPods, LostNodes};
use podward_hooks::{HookArgs, HookCalls, HookObservers};
use podward_kube_util::{ApiError, CachedPod, Events, PodKey, stopped_before_first_list};
use podward_lifecycle_grpc::AttachHub;
use podward_rules::{RuleObservers, Rules};
use podward_traces::OperationTraces;

/// The number of concurrent reconciliations. Those that write queue for a write slot in `Writer`, where the queue is
/// measured. A new leader reconciles all pods, and each reconciliation that waits needs about 13 KiB.
const MAX_CONCURRENT_RECONCILIATIONS: u16 = 1024;

/// The names of watches in metrics.
const PODS: &str = "pods";
const SERVICES: &str = "services";

/// The parts of a leader.
pub(crate) struct Leader {
    /// The client of the API server.
    pub(crate) client: Client,
    /// The identity of this replica in the Lease.
    pub(crate) identity: String,
    /// The arguments of hook calls.
    pub(crate) hooks: HookArgs,
    /// Opens connections to URLs that users wrote.
    pub(crate) dialer: GuardedDialer,
    /// A node that has not been Ready for longer is lost: deletions of its pods do not wait for consumers.
    pub(crate) node_unreachable_limit: Duration,
    /// How long operations wait for busy pods.
    pub(crate) max_busy: Duration,
    /// True if deletions are tried as dry runs in the name of their requesters.
    pub(crate) check_deletes_as_requester: bool,
    /// The metrics of the controller.
    pub(crate) metrics: Arc<Metrics>,
    /// The work in progress. If it does not end, this replica does not lead.
    pub(crate) progress: Progress,
    /// The exporter of spans.
    pub(crate) spans: Spans,
    /// The hub that hook systems attach to. `Some` while this replica leads.
    pub(crate) hub: watch::Sender<Option<Arc<dyn AttachHub>>>,
    /// The pods, for those who record deletion requests. `Some` while this replica leads.
    pub(crate) pods: watch::Sender<Option<Arc<dyn KnownPods>>>,
}

impl Leader {
    /// Watches and reconciles opted-in pods until `stop`. Reconciliations in progress are finished.
    ///
    /// Reconciliation is level-triggered: it depends on the stored state of a pod, not on webhooks, earlier events or
    /// memory.
    pub(crate) async fn lead(&self, stop: CancellationToken) {
        let Leader { client, identity, metrics, .. } = self;
        let opted_in = format!("{CONTROL_LABEL}={CONTROL_VALUE}");
        let pods: Api<CachedPod> = Api::all(client.clone());
        let services: Api<PartialObjectMeta<Service>> = Api::all(client.clone());
        let events = Events::start(client.clone(), "lifecycle-controller", identity, metrics.events.clone());

        let traces = OperationTraces::new(self.spans.clone());

        let (store, writer) = reflector::store();
        let (rules, ruled) = Rules::start(
            client.clone(),
            identity,
            store.clone(),
            RuleObservers {
                metrics: metrics.rules.clone(),
                watches: metrics.watches.clone(),
                events: events.clone(),
                traces: traces.clone(),
            },
            self.dialer.clone(),
            stop.child_token(),
        );
        let followed = rules.clone();
        let pod_events = watcher(pods, watcher::Config::default().labels(&opted_in)).default_backoff();
        let pod_events = metrics.watches.observe(PODS, false, pod_events);
        let (stored, watches) = (store.clone(), metrics.watches.clone());
        let pods = changed_pods(pod_events, writer, move |event| {
            followed.observe_event(event);
            if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                watches.follows(PODS, stored.len());
            }
        });
        let services = watcher(services, watcher::Config::default()).default_backoff();
        let services = changed_services(metrics.watches.observe(SERVICES, false, services));
        let controller = Controller::for_stream(pods, store.clone());
        let (hooks, answers) = HookCalls::start(
            client.clone(),
            self.hooks.clone(),
            self.dialer.clone(),
            store.clone(),
            HookObservers {
                metrics: metrics.callbacks.clone(),
                watches: metrics.watches.clone(),
                traces: traces.clone(),
            },
            stop.child_token(),
        );
        let watch = Watch {
            name: "nodes",
            // Only deletions of pods on lost nodes depend on this watch.
            listed: ReadinessCondition::default(),
            metrics: metrics.watches.clone(),
            may_be_absent: false,
            stop: stop.child_token(),
        };
        let (lost_nodes, stranded) =
            LostNodes::follow(client.clone(), watch, self.node_unreachable_limit, store.clone());
        let (mut deletions, moved) = Deletions::new(client.clone(), lost_nodes, metrics.deletions.clone());
        if self.check_deletes_as_requester {
            deletions = deletions.with_dry_runs();
        }
        self.hub.send_replace(Some(Arc::new(hooks.clone())));
        let deciders =
            Deciders { hooks: hooks.clone(), deletions, rules: rules.clone(), max_busy: self.max_busy };
        let report = Report::new(events, metrics.clone(), traces);
        let (drain_turns, called) = DrainTurns::new(metrics.clone());
        let context =
            Arc::new(Context::new(client.clone(), deciders, drain_turns, report, self.progress.clone()));
        self.pods.send_replace(Some(Arc::new(LeaderPods::new(store.clone(), context.clone()))));
        let stopped_early = stopped_before_first_list(store.clone(), stop.clone());
        let cleanup = tokio::spawn(cleanup::run(store, context.clone(), stop.clone()));
        let opted_out = tokio::spawn({
            let (client, context, stop) = (client.clone(), context.clone(), stop.clone());
            async move { opted_out::release_all(client, &context, &stop).await }
        });
        let (waiting, drain_turns) = (context.clone(), context.drain_turns.clone());
        let work = controller
            .reconcile_on(
                services.flat_map(move |service| stream::iter(pods_waiting_for(&service, &waiting))),
            )
            .reconcile_on(answers)
            .reconcile_on(called)
            .reconcile_on(moved)
            .reconcile_on(stranded)
            .reconcile_on(ruled)
            .with_config(Config::default().concurrency(MAX_CONCURRENT_RECONCILIATIONS))
            .graceful_shutdown_on({
                let stop = stop.clone();
                async move { stop.cancelled().await }
            })
            .run(reconcile, on_error, context)
            .for_each(|result| async {
                if let Err(error) = result {
                    log(&error);
                    if let ControllerError::ObjectNotFound(pod) = error {
                        let namespace = pod.namespace.unwrap_or_default();
                        drop(drain_turns.called(&PodKey { namespace, name: pod.name }));
                    }
                }
            });
        tokio::select! {
            () = work => {}
            () = stopped_early => {}
        }
        self.hub.send_replace(None);
        self.pods.send_replace(None);
        cleanup.abort();
        opted_out.abort();
        hooks.stopped().await;
        rules.stopped().await;
        metrics.forget_operations();
    }
}

/// Returns the pods that wait for `service`: to get its finalizer, or to lose it.
fn pods_waiting_for(service: &ServiceName, context: &Context) -> Vec<ObjectRef<CachedPod>> {
    let ServiceName { namespace, name } = service;
    let waiting = context.services.renew(namespace, name).into_iter();
    let held = context.gone_services.renew(namespace, name);
    waiting.chain(held).map(|pod| pod.object_ref()).collect()
}

fn log(error: &ControllerError<ApiError, watcher::Error>) {
    match error {
        ControllerError::ReconcilerFailed(error @ (ApiError::Conflict { .. } | ApiError::Gone { .. }), _) => {
            tracing::debug!(%error, "reconciliation");
        }
        ControllerError::ReconcilerFailed(error, pod) => tracing::warn!(%error, %pod, "reconciliation"),
        ControllerError::ObjectNotFound(pod) => tracing::debug!(%pod, "pod is gone"),
        other => tracing::warn!(error = %other, "reconciliation"),
    }
}

#[cfg(test)]
mod tests;
