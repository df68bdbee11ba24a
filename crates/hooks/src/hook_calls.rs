//! The calls to all hooks, as the rest of the lifecycle-controller uses them.

use std::sync::Arc;
use std::time::Instant;

use futures::Stream;
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use parking_lot::Mutex;
use podward_core::hooks::{Hook, HookAnswer, HookAnswers, HookPhase, HookQuestion, HookSet};
use podward_kube_util::{CachedPod, work_queue};
use podward_runtime::address_policy::GuardedDialer;
use tokio_util::sync::CancellationToken;

use crate::calls::attachment::{AttachError, Attachment};
use crate::calls::credentials::HookArgs;
use crate::kubernetes::{hooks, namespaces, status};
use crate::observers::HookObservers;
use crate::questions::table::QuestionTable;
use crate::registration::directory::HookDirectory;
use crate::registration::registered::HookConnection;
use crate::shared::HookCallsState;

/// The calls to all hooks. Clones share their state.
#[derive(Clone)]
pub struct HookCalls {
    state: Arc<HookCallsState>,
}

impl HookCalls {
    /// Starts to watch hooks and to call them. When `stop` is cancelled, all calls are cancelled and all state is
    /// dropped.
    ///
    /// `dialer` connects to the servers of hooks that are limited to a namespace. `store` contains the opted-in pods. The stream returns the pods to reconcile: an answer has arrived, or the
    /// hooks that are responsible for the pod have changed.
    pub fn start(
        client: Client,
        args: HookArgs,
        dialer: GuardedDialer,
        store: Store<CachedPod>,
        observers: HookObservers,
        stop: CancellationToken,
    ) -> (HookCalls, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let state = Arc::new(HookCallsState::new(args, client.clone(), dialer, store, observers, stop));
        state.tasks.spawn(run(state.clone(), client));
        state.tasks.close();
        let pods = work_queue::stream(state.pods.clone());
        (HookCalls { state }, pods)
    }

    /// Waits until all tasks have ended, after `stop` was cancelled.
    pub async fn stopped(&self) {
        self.state.tasks.wait().await;
    }

    /// Returns the hooks that are responsible for `pod`, sorted by name, if the pod has opted in, and all hooks,
    /// including the invalid ones: a hook that is not in the set has been deleted. `None` while the hooks or the pod's
    /// namespace are not known: then no finalizer may be released and no pod may become available. The stream returns
    /// the pod when they are known.
    ///
    /// Both are read under one lock: after the end of leadership the hooks are not known, which is not a deletion.
    pub fn hooks_for(&self, pod: &CachedPod) -> Option<(Vec<Arc<Hook>>, Arc<HookSet>)> {
        let directory = self.state.directory.read();
        Some((directory.hooks_for(pod)?, directory.hooks()?.clone()))
    }

    /// Returns the answers about the pod with this UID.
    pub fn answers(&self, uid: &str) -> PodAnswers {
        PodAnswers { table: self.state.table.clone(), uid: uid.to_owned() }
    }

    /// Replaces the open questions of `pod` by `questions`. New questions are sent to their hooks. Questions that are
    /// no longer in the list are closed and their calls are cancelled. The answer DONE to a closed question is kept for
    /// some seconds, in case the write that it led to is rejected.
    pub fn ask(&self, pod: &Arc<CachedPod>, questions: &[HookQuestion]) {
        if !self.state.stop.is_cancelled() {
            self.state.table.lock().ask(pod, questions, Instant::now());
        }
    }

    /// Closes all questions of the pod with this UID, because the pod is gone.
    pub fn forget(&self, uid: &str) {
        self.state.table.lock().forget(uid, Instant::now());
    }

    /// Opens a stream for the hook system `hook`, which has connected to Podward.
    ///
    /// # Errors
    ///
    /// When `hook` is not a valid hook with `attachment`, has too many streams, or this replica does not know the
    /// hooks.
    pub fn attach(&self, hook: &str) -> Result<Attachment, AttachError> {
        let name = hook.to_owned();
        let connection = {
            let directory = self.state.directory.read();
            if directory.hooks().is_none() || self.state.stop.is_cancelled() {
                return Err(AttachError::NotLeading);
            }
            directory.record(hook).map(|record| record.registered.connection.clone())
        };
        match connection {
            None => Err(AttachError::NotRegistered(name)),
            Some(HookConnection::Endpoint(_)) => Err(AttachError::NotAnAttachment(name)),
            Some(HookConnection::Invalid(problem)) => Err(AttachError::Invalid { name, problem }),
            Some(HookConnection::Attachment) => {
                let streams = self.state.attached.lock().get(hook).cloned();
                streams.ok_or(AttachError::NotLeading)?.attach()
            }
        }
    }
}

/// The answers about one pod. Each read returns the latest answer.
pub struct PodAnswers {
    table: Arc<Mutex<QuestionTable>>,
    uid: String,
}

impl HookAnswers for PodAnswers {
    fn answer(&self, question: &HookQuestion) -> Option<HookAnswer> {
        self.table.lock().answer(&self.uid, question)
    }

    fn withhold_unless_asked(&self, hook: &str, phase: HookPhase) -> bool {
        self.table.lock().withhold_unless_asked(&self.uid, hook, phase, Instant::now())
    }
}

async fn run(state: Arc<HookCallsState>, client: Client) {
    let stop = state.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = hooks::watch_hooks(state.clone(), client.clone()) => {}
        () = namespaces::watch_namespaces(state.clone(), client.clone()) => {}
        () = status::write(state.clone(), client) => {}
        () = state.reconsider_when_pods_are_known() => {}
    }
    // None of the tasks is of use without the others, and a replica that does not lead must not call hooks.
    stop.cancel();
    state.attached.lock().drain().for_each(|(_, streams)| streams.close());
    *state.directory.write() = HookDirectory::default();
    state.table.lock().clear();
    state.pods.close();
    state.hooks.close();
}
