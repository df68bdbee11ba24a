//! The work of the leader: its watches and the reconciliations that they cause.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use kube::runtime::controller::{Config, Controller, Error as ControllerError};
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use podward_api::CloneSet;
use podward_core::cloneset::keys;
use podward_kube_util::{Events, stopped_before_first_list};
use podward_runtime::admin::Readiness;
use podward_runtime::progress::Progress;
use podward_runtime::telemetry::traces::Spans;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::cache::OwnedCache;
use crate::context::Context;
use crate::errors::SetError;
use crate::metrics::Metrics;
use crate::reconcile::{on_error, reconcile};
use crate::watches::{OwnedWatch, changed_sets, follow};

/// The sets that are reconciled at the same time. A broken one does not delay others.
const CONCURRENCY: u16 = 64;
/// The pause between two looks for sets that do not exist any more.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// The parts of a leader.
pub(crate) struct Leader {
    pub(crate) client: Client,
    /// The identity of this replica in the Lease.
    pub(crate) identity: String,
    pub(crate) metrics: Arc<Metrics>,
    /// The work in progress. If it does not end, this replica does not lead.
    pub(crate) progress: Progress,
    pub(crate) spans: Spans,
}

impl Leader {
    /// Watches and reconciles CloneSets until `stop`. Reconciliations in progress are finished.
    pub(crate) async fn lead(&self, stop: CancellationToken) {
        let Leader { client, identity, metrics, progress, spans } = self;
        let (changed, changes) = mpsc::unbounded();
        let (store, writer) = reflector::store();
        let (pods, revisions, claims) = (
            Arc::<OwnedCache<_>>::default(),
            Arc::<OwnedCache<_>>::default(),
            Arc::<OwnedCache<_>>::default(),
        );
        let lists = Readiness::default();
        let watch = |name: &'static str| OwnedWatch {
            client: client.clone(),
            listed: lists.condition(name),
            changed: changed.clone(),
            sets: store.clone(),
            metrics: metrics.watches.clone(),
            stop: stop.child_token(),
        };
        tokio::spawn(follow("pods", keys::INSTANCE_ID, Arc::clone(&pods), watch("pods")));
        let of_sets = "controller.kubernetes.io/hash";
        let watch_revisions = watch("ControllerRevisions");
        tokio::spawn(follow("ControllerRevisions", of_sets, Arc::clone(&revisions), watch_revisions));
        let watch_claims = watch("PersistentVolumeClaims");
        tokio::spawn(follow("PersistentVolumeClaims", keys::INSTANCE_ID, Arc::clone(&claims), watch_claims));
        // Without the first lists nothing is known, so nothing may be created or deleted.
        if stop.run_until_cancelled(lists.met()).await.is_none() {
            return;
        }
        let events = Events::start(client.clone(), "cloneset-controller", identity, metrics.events.clone());
        let context = Arc::new(Context {
            client: client.clone(),
            pods,
            revisions,
            claims,
            events,
            metrics: Arc::clone(metrics),
            progress: progress.clone(),
            spans: spans.clone(),
            stop: stop.clone(),
            user: OnceCell::new(),
            memory: Mutex::new(HashMap::new()),
        });
        let sets =
            watcher(Api::<CloneSet>::all(client.clone()), watcher::Config::default()).default_backoff();
        let sets = changed_sets(metrics.watches.observe("CloneSets", false, sets), writer);
        let stopped_early = stopped_before_first_list(store.clone(), stop.clone());
        let cleanup = clean_up(store.clone(), Arc::clone(&context));
        let work = Controller::for_stream(sets, store)
            .reconcile_on(changes)
            .with_config(Config::default().concurrency(CONCURRENCY))
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
            () = stopped_early => {}
            () = cleanup => {}
        }
    }
}

/// Forgets sets that do not exist any more, from time to time. Does not end.
async fn clean_up(store: Store<CloneSet>, context: Arc<Context>) {
    loop {
        tokio::time::sleep(CLEANUP_INTERVAL).await;
        let sets: HashSet<String> = store.state().iter().filter_map(|set| set.uid()).collect();
        context.retain(|uid| sets.contains(uid));
    }
}

fn log(error: &ControllerError<SetError, watcher::Error>) {
    match error {
        ControllerError::ReconcilerFailed(error, set) if error.is_outdated() => {
            tracing::debug!(%error, %set, "reconciliation");
        }
        ControllerError::ReconcilerFailed(error, set) => tracing::warn!(%error, %set, "reconciliation"),
        ControllerError::ObjectNotFound(set) => tracing::debug!(%set, "the CloneSet is gone"),
        other => tracing::warn!(error = %other, "reconciliation"),
    }
}
