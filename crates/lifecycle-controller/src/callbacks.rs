//! The callback engine: asks hooks about pods, and keeps their answers for the engine in `podward-core`.
//!
//! ```text
//!  LifecycleHooks, Namespaces ──► hooks ──► directory: which hooks is a pod for?
//!                                   │
//!                                   ├──► driver (one a hook) ──► endpoint: gRPC to a hook server
//!                                   │      ▲   │            └──► attach: streams of hook systems that connect to us
//!                                   │      │   ▼
//!  reconcile ──► ask, answers ──► board: questions, queues, circuits ──► pods to be looked at again
//!                                   └──► status of the LifecycleHooks
//! ```
//!
//! It runs in the leader only. All of it may be lost at any time: questions are asked again, at least once, and answered idempotently.

mod attach;
mod board;
mod circuit;
mod credentials;
mod directory;
mod driver;
mod endpoint;
mod hooks;
mod metrics;
mod queue;
mod registered;
mod request;
mod response;
mod stats;
mod status;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures::{FutureExt, Stream};
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use parking_lot::{Mutex, RwLock};
use podward_core::hooks::{Answer, Answers, Hook, HookSet, Question};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cached_pod::CachedPod;
use crate::inbox::{self, Inbox};
use crate::traces::Traces;
use attach::Hub;
use board::{Board, Outbox};
use credentials::Credentials;
use directory::Directory;
use registered::Connection;

pub(crate) use attach::{AttachError, Attachment};
pub(crate) use credentials::HookArgs;
pub(crate) use metrics::HookMetrics;

/// The callback engine. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Callbacks {
    shared: Arc<Shared>,
}

struct Shared {
    board: Arc<Mutex<Board>>,
    directory: RwLock<Directory>,
    hubs: Mutex<HashMap<String, Arc<Hub>>>,
    /// Opted-in pods, for what concerns several of them.
    store: Store<CachedPod>,
    /// Pods to be looked at again.
    pods: Arc<Inbox<ObjectRef<CachedPod>>>,
    /// Hooks whose status may have changed.
    hooks: Arc<Inbox<String>>,
    credentials: Arc<Credentials>,
    metrics: HookMetrics,
    traces: Traces,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Callbacks {
    /// Begins to watch hooks and to ask them; ends with `stop`, when all calls are cancelled and everything is forgotten.
    ///
    /// `store` has the opted-in pods. The stream gives pods to be looked at again: an answer came, or other hooks are for them.
    pub(crate) fn start(
        client: Client,
        args: HookArgs,
        store: Store<CachedPod>,
        metrics: HookMetrics,
        traces: Traces,
        stop: CancellationToken,
    ) -> (Callbacks, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let out = Outbox { metrics: metrics.clone(), ..Outbox::default() };
        let (pods, hooks) = (out.pods.clone(), out.hooks.clone());
        let shared = Arc::new(Shared {
            board: Arc::new(Mutex::new(Board::new(out))),
            directory: RwLock::default(),
            hubs: Mutex::default(),
            store,
            pods: pods.clone(),
            hooks,
            credentials: Arc::new(Credentials::new(args)),
            metrics,
            traces,
            stop,
            tasks: TaskTracker::new(),
        });
        shared.tasks.spawn(run(shared.clone(), client));
        shared.tasks.close();
        (Callbacks { shared }, inbox::stream(pods))
    }

    /// Waits until nothing is left, after `stop`.
    pub(crate) async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }

    /// The hooks that `pod` is for, by name, if it has opted in. `None` when that is not known (yet): then nothing may be released, and
    /// nothing called available. The pod comes down the stream when it is.
    pub(crate) fn hooks_for(&self, pod: &CachedPod) -> Option<Vec<Arc<Hook>>> {
        self.shared.directory.read().hooks_for(pod)
    }

    /// All hooks, those too that can't be right: one that is not among them is gone. Empty when they are not known, which
    /// [`Callbacks::hooks_for`] says.
    pub(crate) fn known(&self) -> Arc<HookSet> {
        self.shared.directory.read().hooks().cloned().unwrap_or_default()
    }

    /// What is known of the answers about the pod with this UID.
    pub(crate) fn answers(&self, uid: &str) -> PodAnswers {
        PodAnswers { board: self.shared.board.clone(), uid: uid.to_owned() }
    }

    /// From now on `questions` are the open ones of `pod`. New ones are put to their hooks; those that are not among them any more are
    /// closed, and calls for them cancelled. An answer DONE to a closed question stays for some seconds, for the case that the write
    /// which it led to is refused.
    pub(crate) fn ask(&self, pod: &Arc<CachedPod>, questions: &[Question]) {
        if !self.shared.stop.is_cancelled() {
            self.shared.board.lock().ask(pod, questions, Instant::now());
        }
    }

    /// Nothing is asked about the pod with this UID any more: it is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.shared.board.lock().forget(uid, Instant::now());
    }

    /// A stream of the hook system `hook`, which has connected to us.
    ///
    /// # Errors
    /// When it is no hook that may, or the hooks are not known here.
    pub(crate) fn attach(&self, hook: &str) -> Result<Attachment, AttachError> {
        let name = hook.to_owned();
        let connection = {
            let directory = self.shared.directory.read();
            if directory.hooks().is_none() || self.shared.stop.is_cancelled() {
                return Err(AttachError::NotLeading);
            }
            directory.record(hook).map(|record| record.registered.connection.clone())
        };
        match connection {
            None => Err(AttachError::NotRegistered(name)),
            Some(Connection::Endpoint(_)) => Err(AttachError::NotAnAttachment(name)),
            Some(Connection::Invalid(problem)) => Err(AttachError::Invalid { name, problem }),
            Some(Connection::Attachment) => {
                let hub = self.shared.hubs.lock().get(hook).cloned();
                hub.ok_or(AttachError::NotLeading)?.attach()
            }
        }
    }
}

/// The answers about one pod, as they are at the moment of asking.
pub(crate) struct PodAnswers {
    board: Arc<Mutex<Board>>,
    uid: String,
}

impl Answers for PodAnswers {
    fn answer(&self, question: &Question) -> Option<Answer> {
        self.board.lock().answer(&self.uid, question)
    }
}

async fn run(shared: Arc<Shared>, client: Client) {
    let stop = shared.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = hooks::watch_hooks(shared.clone(), client.clone()) => {}
        () = hooks::watch_namespaces(shared.clone(), client.clone()) => {}
        () = status::write(shared.clone(), client) => {}
        () = shared.reconsider_when_pods_are_known() => {}
    }
    // Whatever the reason: half of it would be of no use, and nothing may go on where it does not lead.
    stop.cancel();
    shared.hubs.lock().drain().for_each(|(_, hub)| hub.close());
    *shared.directory.write() = Directory::default();
    shared.board.lock().clear();
    shared.pods.close();
    shared.hooks.close();
}

impl Shared {
    /// Pods for which this is so are to be looked at again.
    fn wake(&self, concerned: impl Fn(&CachedPod) -> bool) {
        for pod in self.store.state().iter().filter(|pod| concerned(pod)) {
            self.pods.push(ObjectRef::from_obj(&**pod));
        }
    }

    fn reconsider_all(&self) {
        self.directory.read().names().for_each(|name| self.hooks.push(name.clone()));
    }

    /// Which hooks match no pod can be told only then.
    async fn reconsider_when_pods_are_known(&self) {
        if self.store.wait_until_ready().await.is_ok() {
            self.reconsider_all();
        }
        std::future::pending().await
    }

    /// Whether the hook `name` is for no pod at all; `None` when that is not known.
    fn is_for_nobody(&self, name: &str) -> Option<bool> {
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

    fn open_hub(&self, name: &str, limit: usize) -> Arc<Hub> {
        let new = || {
            Arc::new(Hub::new(
                name,
                limit,
                self.board.clone(),
                self.metrics.clone(),
                self.stop.child_token(),
                self.tasks.clone(),
            ))
        };
        self.hubs.lock().entry(name.to_owned()).or_insert_with(new).clone()
    }

    fn close_hub(&self, name: &str) {
        let hub = self.hubs.lock().remove(name);
        if let Some(hub) = hub {
            hub.close();
        }
    }
}
