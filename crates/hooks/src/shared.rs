//! The state that the tasks of this crate share.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use parking_lot::{Mutex, RwLock};
use podward_kube_util::watched::WatchMetrics;
use podward_kube_util::{CachedPod, WorkQueue};
use podward_runtime::address_policy::GuardedDialer;
use podward_traces::OperationTraces;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::calls::attachment::AttachedStreams;
use crate::calls::credentials::{HookArgs, HookCredentials};
use crate::metrics::HookMetrics;
use crate::observers::HookObservers;
use crate::questions::table::{QuestionTable, TableOutput};
use crate::registration::directory::HookDirectory;

/// The shared state.
pub(crate) struct HookCallsState {
    pub(crate) table: Arc<Mutex<QuestionTable>>,
    pub(crate) directory: RwLock<HookDirectory>,
    /// The streams of each hook with `attachment`, by hook name.
    pub(crate) attached: Mutex<HashMap<String, Arc<AttachedStreams>>>,
    /// The opted-in pods.
    store: Store<CachedPod>,
    /// The pods to reconcile.
    pub(crate) pods: Arc<WorkQueue<ObjectRef<CachedPod>>>,
    /// The hooks whose status may have changed.
    pub(crate) hooks: Arc<WorkQueue<String>>,
    pub(crate) credentials: Arc<HookCredentials>,
    pub(crate) metrics: HookMetrics,
    pub(crate) watches: WatchMetrics,
    pub(crate) traces: OperationTraces,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl HookCallsState {
    pub(crate) fn new(
        args: HookArgs,
        client: Client,
        dialer: GuardedDialer,
        store: Store<CachedPod>,
        observers: HookObservers,
        stop: CancellationToken,
    ) -> Self {
        let HookObservers { metrics, watches, traces } = observers;
        let output = TableOutput { metrics: metrics.clone(), ..TableOutput::default() };
        let (pods, hooks) = (output.pods.clone(), output.hooks.clone());
        Self {
            table: Arc::new(Mutex::new(QuestionTable::new(output))),
            directory: RwLock::default(),
            attached: Mutex::default(),
            store,
            pods,
            hooks,
            credentials: Arc::new(HookCredentials::new(args, Some(client), dialer)),
            metrics,
            watches,
            traces,
            stop,
            tasks: TaskTracker::new(),
        }
    }

    /// Queues the pods that `is_affected` selects to be reconciled.
    pub(crate) fn wake(&self, is_affected: impl Fn(&CachedPod) -> bool) {
        for pod in self.store.state().iter().filter(|pod| is_affected(pod)) {
            self.pods.push(ObjectRef::from_obj(&**pod));
        }
    }

    /// Queues the status of all hooks to be checked.
    pub(crate) fn reconsider_all(&self) {
        self.directory.read().names().for_each(|name| self.hooks.push(name.clone()));
    }

    /// Checks the status of all hooks when the pods are listed: a hook that matches no pod is only known then.
    pub(crate) async fn reconsider_when_pods_are_known(&self) {
        if self.store.wait_until_ready().await.is_ok() {
            self.reconsider_all();
        }
        std::future::pending().await
    }

    /// Returns true if the hook `name` is responsible for no pod. `None` while pods or namespaces are not known.
    pub(crate) fn matches_no_pod(&self, name: &str) -> Option<bool> {
        self.store.wait_until_ready().now_or_never()?.ok()?;
        let directory = self.directory.read();
        let hook = &directory.record(name)?.registered.hook;
        for pod in self.store.state() {
            if directory.concerns(hook, &pod)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Returns the streams of the hook `name`; there is none at first. `limit` is the number of concurrent calls.
    pub(crate) fn open_streams(&self, name: &str, limit: usize) -> Arc<AttachedStreams> {
        let new = || {
            Arc::new(AttachedStreams::new(
                name,
                limit,
                self.table.clone(),
                self.metrics.clone(),
                self.stop.child_token(),
                self.tasks.clone(),
            ))
        };
        let streams = self.attached.lock().entry(name.to_owned()).or_insert_with(new).clone();
        streams.limit(limit);
        streams
    }

    /// Ends all streams of the hook `name`.
    pub(crate) fn close_streams(&self, name: &str) {
        let streams = self.attached.lock().remove(name);
        if let Some(streams) = streams {
            streams.close();
        }
    }
}
