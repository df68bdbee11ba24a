//! The watch of namespaces.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use crate::kubernetes::watch_errors::WatchErrorLog;
use crate::registration::directory::NamespaceLabels;
use crate::shared::HookCallsState;

/// The name of the watch in metrics.
const NAME: &str = "namespaces";

/// Watches the labels of namespaces while it is polled.
pub(crate) async fn watch_namespaces(shared: Arc<HookCallsState>, client: Client) {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(shared.watches.observe(NAME, false, events));
    let mut errors = WatchErrorLog::new(NAME);
    let mut listed: HashMap<String, NamespaceLabels> = HashMap::new();
    while let Some(event) = events.next().await {
        let Some(event) = errors.note(event) else { continue };
        let is_listing = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
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
        if !is_listing {
            let namespaces = shared.directory.read().count_namespaces();
            shared.watches.follows(NAME, namespaces);
        }
    }
}

fn labels(namespace: PartialObjectMeta<Namespace>) -> NamespaceLabels {
    namespace.metadata.labels.unwrap_or_default()
}
