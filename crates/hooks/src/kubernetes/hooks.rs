//! The watch of LifecycleHooks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use podward_api::LifecycleHook;
use podward_core::hooks::{Hook, hook_finalizer};
use tokio_util::task::AbortOnDropHandle;

use crate::calls::driver::{HookDriver, HookTransport};
use crate::calls::endpoint::EndpointClient;
use crate::kubernetes::watch_errors::WatchErrorLog;
use crate::registration::record::HookRecord;
use crate::registration::registered::{HookConnection, RegisteredHook};
use crate::shared::HookCallsState;
use podward_kube_util::CachedPod;

/// The name of the watch in metrics.
const NAME: &str = "lifecyclehooks";

type GuardedHook = DeserializeGuard<LifecycleHook>;

/// Watches LifecycleHooks and calls the valid ones while it is polled. Dropping it ends all calls.
pub(crate) async fn watch_hooks(shared: Arc<HookCallsState>, client: Client) {
    let api: Api<GuardedHook> = Api::all(client);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let events = shared.watches.observe(NAME, false, events);
    HookWatch { shared, drivers: HashMap::new() }.follow(events).await;
}

struct HookWatch {
    shared: Arc<HookCallsState>,
    drivers: HashMap<String, AbortOnDropHandle<()>>,
}

impl HookWatch {
    async fn follow(mut self, events: impl Stream<Item = watcher::Result<watcher::Event<GuardedHook>>>) {
        let mut events = std::pin::pin!(events);
        let mut errors = WatchErrorLog::new("lifecyclehooks.podward.io");
        let mut listed: BTreeMap<String, HookRecord> = BTreeMap::new();
        while let Some(event) = events.next().await {
            let Some(event) = errors.note(event) else { continue };
            let is_listing = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
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
            if !is_listing {
                let hooks = self.shared.directory.read().names().count();
                self.shared.watches.follows(NAME, hooks);
            }
        }
    }

    fn record(&self, name: &str, object: GuardedHook) -> HookRecord {
        HookRecord::new(object.0, self.shared.directory.read().record(name))
    }

    /// Stores a complete list.
    async fn list(&mut self, listed: BTreeMap<String, HookRecord>) {
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

    /// Stores or removes one hook.
    async fn put(&mut self, name: &str, record: Option<HookRecord>) {
        let stored = self.shared.directory.read().record(name).cloned();
        // The watch has missed that the hook was deleted.
        let is_replaced =
            stored.as_ref().zip(record.as_ref()).is_some_and(|(before, after)| before.uid != after.uid);
        if is_replaced {
            self.drive(name, None).await;
        }
        let (before, after) =
            (stored.map(|record| record.registered), record.as_ref().map(|record| record.registered.clone()));
        if is_replaced || before != after {
            self.drive(name, after.clone()).await;
        }
        if let Some(record) = &record {
            self.shared.metrics.rejected(name, record.refused.is_some());
        }
        self.shared.directory.write().put(name, record);
        self.shared.hooks.push(name.to_owned());
        let (before, after) = (before.map(|before| before.hook), after.map(|after| after.hook));
        if before != after {
            self.wake_for(name, before.as_ref(), after.as_ref());
        }
    }

    /// Wakes the pods that the hook `name` is or was responsible for, and those that have its finalizer: it can hold
    /// pods that it does not select any more.
    fn wake_for(&self, name: &str, before: Option<&Hook>, after: Option<&Hook>) {
        let directory = self.shared.directory.read();
        if directory.hooks().is_none() {
            return;
        }
        let finalizer = hook_finalizer(name);
        let concerns = |pod: &CachedPod| {
            let mut hooks = before.into_iter().chain(after);
            pod.view().finalizers.contains(&finalizer)
                || hooks.any(|hook| directory.concerns(hook, pod).unwrap_or(true))
        };
        self.shared.wake(concerns);
    }

    /// Stops the driver of the old hook and starts that of the new one.
    async fn drive(&mut self, name: &str, registered: Option<RegisteredHook>) {
        if let Some(driver) = self.drivers.remove(name) {
            driver.abort();
            // The old driver must not change the table any more. An aborted task returns an error.
            drop(driver.await);
        }
        let Some(registered) = registered.map(Arc::new) else {
            self.shared.close_streams(name);
            self.shared.table.lock().deregister(name);
            return;
        };
        let wakeup = self.shared.table.lock().register(&registered);
        let line = match &registered.connection {
            HookConnection::Endpoint(endpoint) => {
                self.shared.close_streams(name);
                let credentials = self.shared.credentials.clone();
                let token = credentials.token(name);
                let client =
                    EndpointClient::new(endpoint.clone(), registered.call_timeout, credentials, token);
                HookTransport::Endpoint(Box::new(client))
            }
            HookConnection::Attachment => {
                HookTransport::Attached(self.shared.open_streams(name, registered.max_concurrent_calls))
            }
            HookConnection::Invalid(_) => {
                self.shared.close_streams(name);
                return;
            }
        };
        let (table, metrics) = (self.shared.table.clone(), self.shared.metrics.clone());
        let traces = self.shared.traces.clone();
        let driver = HookDriver { registered, line, wakeup, table, metrics, traces };
        self.drivers.insert(name.to_owned(), AbortOnDropHandle::new(tokio::spawn(driver.run())));
    }
}
