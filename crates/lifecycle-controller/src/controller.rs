//! The watches, and the work that they bring.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Config, Controller, Error as ControllerError};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_runtime::admin::Condition;
use podward_runtime::telemetry::traces::Spans;
use podward_runtime::watched::Watch;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cached_pod::{CachedPod, PodKey};
use crate::callbacks::{Callbacks, HookArgs};
use crate::deletion::{Deletions, LostNodes};
use crate::error::Error;
use crate::events::Events;
use crate::grpc::AttachHub;
use crate::metrics::Metrics;
use crate::reconcile::{Context, Voices, let_go_of, on_error, reconcile};
use crate::rules::{Rules, Telling};
use crate::services::missing_services;
use crate::traces::Traces;

/// How often what is remembered of deleted pods is thrown away.
const SWEEP: Duration = Duration::from_secs(60);

/// What a leader works with.
pub(crate) struct Leader {
    pub(crate) client: Client,
    /// Who this replica is.
    pub(crate) identity: String,
    pub(crate) hooks: HookArgs,
    /// For how long a node must not have been Ready until nobody is waited for that has to let go of its pods.
    pub(crate) node_unreachable_limit: Duration,
    /// How long operations wait for busy pods.
    pub(crate) max_busy: Duration,
    pub(crate) metrics: Arc<Metrics>,
    /// Where traces go.
    pub(crate) spans: Spans,
    /// Where hook systems attach, while this replica leads.
    pub(crate) hub: watch::Sender<Option<Arc<dyn AttachHub>>>,
}

impl Leader {
    /// Watches opted-in pods and brings each as far as it may go, until `stop`. What is in flight then is finished.
    ///
    /// Level-triggered: it needs no webhook, no memory of its own and no event in particular; the state of a pod is enough.
    pub(crate) async fn lead(&self, stop: CancellationToken) {
        let Leader { client, identity, metrics, .. } = self;
        let opted_in = format!("{CONTROL_LABEL}={CONTROL_VALUE}");
        let pods: Api<CachedPod> = Api::all(client.clone());
        let services: Api<PartialObjectMeta<Service>> = Api::all(client.clone());
        let events = Events::start(client.clone(), identity, metrics.clone());

        let traces = Traces::new(self.spans.clone());

        let (store, writer) = reflector::store();
        let (rules, ruled) = Rules::start(
            client.clone(),
            identity,
            store.clone(),
            Telling {
                metrics: metrics.rules.clone(),
                watches: metrics.watches.clone(),
                events: events.clone(),
                traces: traces.clone(),
            },
            stop.child_token(),
        );
        let followed = rules.clone();
        // What the controller itself would make of it, but that rules hear of pods that are gone too.
        let pods = watcher(pods, watcher::Config::default().labels(&opted_in))
            .reflect(writer)
            .inspect_ok(move |event| followed.followed(event))
            .applied_objects();
        let controller = Controller::for_stream(pods, store.clone());
        let (hooks, answers) = Callbacks::start(
            client.clone(),
            self.hooks.clone(),
            store.clone(),
            metrics.callbacks.clone(),
            traces.clone(),
            stop.child_token(),
        );
        let watch = Watch {
            name: "nodes",
            // Only deletions of pods of lost nodes wait for it.
            listed: Condition::default(),
            metrics: metrics.watches.clone(),
            may_be_absent: false,
            stop: stop.child_token(),
        };
        let (lost_nodes, stranded) =
            LostNodes::follow(client.clone(), watch, self.node_unreachable_limit, store.clone());
        let (deletions, moved) = Deletions::new(client.clone(), lost_nodes, metrics.deletions.clone());
        self.hub.send_replace(Some(Arc::new(hooks.clone())));
        let voices =
            Voices { hooks: hooks.clone(), deletions, rules: rules.clone(), max_busy: self.max_busy };
        let context = Arc::new(Context::new(client.clone(), metrics.clone(), events, voices, traces));
        let never_began = stopped_before_the_first_list(store.clone(), stop.clone());
        let sweeper = tokio::spawn(sweep(store.clone(), context.clone(), stop.clone()));
        let waiting = (store, context.clone());
        let work = controller
            .watches(services, watcher::Config::default(), move |service| {
                pods_that_wait_for(&service, &waiting.0, &waiting.1)
            })
            .reconcile_on(answers)
            .reconcile_on(moved)
            .reconcile_on(stranded)
            .reconcile_on(ruled)
            // Pods queue for their write in `reconcile`, where the queue can be measured.
            .with_config(Config::default().concurrency(0))
            .graceful_shutdown_on({
                let stop = stop.clone();
                async move { stop.cancelled().await }
            })
            .run(reconcile, on_error, context)
            .for_each(|result| async {
                if let Err(error) = result {
                    log(&error);
                }
            });
        tokio::select! {
            () = work => {}
            () = never_began => {}
        }
        self.hub.send_replace(None);
        sweeper.abort();
        hooks.stopped().await;
        rules.stopped().await;
        metrics.forget_operations();
    }
}

/// Ends if `stop` comes while the first list of pods is still awaited. The controller would wait on for it; and nothing can be in
/// flight then. Once it has the list it ends by itself, when what is in flight is done.
async fn stopped_before_the_first_list(store: Store<CachedPod>, stop: CancellationToken) {
    stop.cancelled().await;
    if store.wait_until_ready().now_or_never().is_some() {
        std::future::pending::<()>().await;
    }
}

/// The pods that expect a finalizer of `service` and haven't got it.
fn pods_that_wait_for(
    service: &PartialObjectMeta<Service>,
    store: &Store<CachedPod>,
    context: &Context,
) -> Vec<ObjectRef<CachedPod>> {
    let wanted = (service.namespace().unwrap_or_default(), service.name_any());
    let waits = |pod: &CachedPod| {
        pod.view().available_conditions.is_some() && missing_services(pod).contains(&wanted)
    };
    store
        .state()
        .into_iter()
        .filter(|pod| waits(pod))
        .map(|pod| {
            context.tracker.renew_service_check(&pod.key());
            ObjectRef::from_obj(&*pod)
        })
        .collect()
}

async fn sweep(store: Store<CachedPod>, context: Arc<Context>, stop: CancellationToken) {
    let exists = |key: &PodKey| store.get(&ObjectRef::new(&key.name).within(&key.namespace)).is_some();
    while stop.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
        let owners: HashSet<String> =
            store.state().iter().filter_map(|pod| pod.controller().map(|owner| owner.uid.clone())).collect();
        context.voices.deletions.retain(|uid| owners.contains(uid));
        let gone = context.tracker.retain(&context.metrics, exists);
        context.latest.retain(exists);
        for (key, uid) in gone {
            context.voices.hooks.forget(&uid);
            context.voices.rules.forget(&uid);
            context.voices.deletions.forget(&key);
            // It may be gone from the watch because it isn't opted in any more.
            if let Err(error) = let_go_of(&key, &uid, &context).await {
                tracing::warn!(%error, pod = %key, "a pod that is not opted in any more may keep finalizers of hooks");
            }
        }
    }
}

fn log(error: &ControllerError<Error, watcher::Error>) {
    match error {
        ControllerError::ReconcilerFailed(error @ (Error::Conflict { .. } | Error::Gone { .. }), _) => {
            tracing::debug!(%error, "reconciliation");
        }
        ControllerError::ReconcilerFailed(error, pod) => tracing::warn!(%error, %pod, "reconciliation"),
        ControllerError::ObjectNotFound(pod) => tracing::debug!(%pod, "pod is gone"),
        other => {
            tracing::warn!(error = %other, "watch of pods or Services; it is taken up again with back-off")
        }
    }
}
