//! The watches of LifecycleHooks and of namespaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use podward_api::LifecycleHook;
use podward_core::hooks::Hook;
use tokio_util::task::AbortOnDropHandle;

use super::Shared;
use super::directory::Labels;
use super::driver::{Driver, Line};
use super::endpoint::EndpointClient;
use super::registered::{Connection, Record, Registered};
use crate::cached_pod::CachedPod;

type Watched = DeserializeGuard<LifecycleHook>;

/// Watches LifecycleHooks and drives those that can be asked, for as long as it is polled; dropping it ends all calls.
pub(super) async fn watch_hooks(shared: Arc<Shared>, client: Client) {
    let api: Api<Watched> = Api::all(client);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    Hooks { shared, drivers: HashMap::new() }.follow(events).await;
}

/// Watches the labels of namespaces, for as long as it is polled.
pub(super) async fn watch_namespaces(shared: Arc<Shared>, client: Client) {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut trouble = Trouble::new("namespaces");
    let mut listed: HashMap<String, Labels> = HashMap::new();
    while let Some(event) = events.next().await {
        let Some(event) = trouble.note(event) else { continue };
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(namespace) => {
                listed.insert(namespace.name_any(), labels(namespace));
            }
            watcher::Event::InitDone => {
                shared.directory.write().list_namespaces(std::mem::take(&mut listed));
                shared.wake(|_| true);
                shared.reconsider_all();
            }
            watcher::Event::Apply(namespace) => {
                let name = namespace.name_any();
                let labels = labels(namespace);
                if shared.directory.write().put_namespace(&name, Some(labels)) {
                    shared.wake(|pod| pod.key().namespace == name);
                }
            }
            watcher::Event::Delete(namespace) => {
                shared.directory.write().put_namespace(&namespace.name_any(), None);
            }
        }
    }
}

fn labels(namespace: PartialObjectMeta<Namespace>) -> Labels {
    namespace.metadata.labels.unwrap_or_default()
}

struct Hooks {
    shared: Arc<Shared>,
    drivers: HashMap<String, AbortOnDropHandle<()>>,
}

impl Hooks {
    async fn follow(mut self, events: impl Stream<Item = watcher::Result<watcher::Event<Watched>>>) {
        let mut events = std::pin::pin!(events);
        let mut trouble = Trouble::new("lifecyclehooks.podward.io");
        let mut listed: BTreeMap<String, Record> = BTreeMap::new();
        while let Some(event) = events.next().await {
            let Some(event) = trouble.note(event) else { continue };
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(object) => {
                    let name = object.name_any();
                    let record = self.record(&name, object);
                    listed.insert(name, record);
                }
                watcher::Event::InitDone => self.list(std::mem::take(&mut listed)).await,
                watcher::Event::Apply(object) => {
                    let name = object.name_any();
                    let record = self.record(&name, object);
                    self.put(&name, Some(record)).await;
                }
                watcher::Event::Delete(object) => self.put(&object.name_any(), None).await,
            }
        }
    }

    fn record(&self, name: &str, object: Watched) -> Record {
        Record::new(object.0, self.shared.directory.read().record(name))
    }

    /// Takes over a complete list.
    async fn list(&mut self, listed: BTreeMap<String, Record>) {
        let present: BTreeSet<String> = self.shared.directory.read().names().cloned().collect();
        for name in present.iter().filter(|name| !listed.contains_key(*name)) {
            self.put(name, None).await;
        }
        for (name, record) in listed {
            self.put(&name, Some(record)).await;
        }
        let is_first = self.shared.directory.read().hooks().is_none();
        if is_first {
            self.shared.directory.write().compile();
            self.shared.wake(|_| true);
        }
    }

    /// Takes over one hook, or the lack of it.
    async fn put(&mut self, name: &str, record: Option<Record>) {
        let registered = |record: Option<&Record>| record.map(|record| record.registered.clone());
        let before = registered(self.shared.directory.read().record(name));
        let after = registered(record.as_ref());
        if before != after {
            self.drive(name, after.clone()).await;
        }
        self.shared.directory.write().put(name, record);
        self.shared.hooks.push(name.to_owned());
        let (before, after) = (before.map(|before| before.hook), after.map(|after| after.hook));
        if before != after {
            self.wake_for(before.as_ref(), after.as_ref());
        }
    }

    /// Pods look again that a hook is for, or was.
    fn wake_for(&self, before: Option<&Hook>, after: Option<&Hook>) {
        let directory = self.shared.directory.read();
        if directory.hooks().is_none() {
            return;
        }
        let concerns = |pod: &CachedPod| {
            let hooks = before.into_iter().chain(after);
            hooks.into_iter().any(|hook| directory.concerns(hook, pod).unwrap_or(true))
        };
        self.shared.wake(concerns);
    }

    /// Ends the calls to what the hook was, and begins those to what it is.
    async fn drive(&mut self, name: &str, registered: Option<Registered>) {
        if let Some(driver) = self.drivers.remove(name) {
            driver.abort();
            // It must not touch the board any more; a task that was aborted ends with an error.
            drop(driver.await);
        }
        let Some(registered) = registered.map(Arc::new) else {
            self.shared.close_hub(name);
            self.shared.board.lock().deregister(name);
            return;
        };
        let bell = self.shared.board.lock().register(&registered);
        let line = match &registered.connection {
            Connection::Endpoint(endpoint) => {
                self.shared.close_hub(name);
                let credentials = self.shared.credentials.clone();
                Line::Endpoint(EndpointClient::new(endpoint.clone(), registered.call_timeout, credentials))
            }
            Connection::Attachment => {
                Line::Attached(self.shared.open_hub(name, registered.max_concurrent_calls))
            }
            Connection::Invalid(_) => {
                self.shared.close_hub(name);
                return;
            }
        };
        let (board, metrics) = (self.shared.board.clone(), self.shared.metrics.clone());
        let traces = self.shared.traces.clone();
        let driver = Driver { registered, line, bell, board, metrics, traces };
        self.drivers.insert(name.to_owned(), AbortOnDropHandle::new(tokio::spawn(driver.run())));
    }
}

/// Complains about a watch once for each time that it fails, and not again before it has worked.
struct Trouble {
    of: &'static str,
    told: bool,
}

impl Trouble {
    fn new(of: &'static str) -> Self {
        Trouble { of, told: false }
    }

    fn note<T>(&mut self, event: watcher::Result<watcher::Event<T>>) -> Option<watcher::Event<T>> {
        match event {
            Ok(event) => {
                // A list that begins has not worked yet.
                self.told &= matches!(event, watcher::Event::Init);
                Some(event)
            }
            Err(error) if self.told => {
                tracing::debug!(%error, of = self.of, "watch");
                None
            }
            Err(error) if is_missing(&error) => {
                self.told = true;
                tracing::warn!(
                    of = self.of,
                    "the resource is not installed: no hooks are known, and nothing is let go of before they are. Install the \
                     CustomResourceDefinitions of Podward; it is tried again with back-off"
                );
                None
            }
            Err(error) => {
                self.told = true;
                tracing::warn!(%error, of = self.of, "watch; it is taken up again with back-off");
                None
            }
        }
    }
}

fn is_missing(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
