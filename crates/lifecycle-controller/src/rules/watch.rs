//! The watch of rule objects.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use podward_api::PodTransitionRule;
use podward_core::rules::Ledger;
use podward_runtime::watched::WatchMetrics;

use super::state::Record;
use super::{Shared, lane};

type Watched = DeserializeGuard<PodTransitionRule>;

const NAME: &str = "podtransitionrules";

/// Follows rule objects. One that can't be read refuses the pods of its namespace, and says why; a watch that fails leaves what is known,
/// and nobody relies on what isn't there (see [`super::fresh`]).
pub(super) async fn follow(shared: Arc<Shared>, metrics: WatchMetrics) {
    let api: Api<Watched> = Api::all(shared.client.clone());
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut listed: Vec<(String, String)> = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.push((object.namespace().unwrap_or_default(), object.name_any()));
                shared.take(object);
            }
            Ok(watcher::Event::InitDone) => {
                shared.keep(&listed);
                metrics.follows(NAME, listed.len());
            }
            Ok(watcher::Event::Apply(object)) => shared.take(object),
            Ok(watcher::Event::Delete(object)) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                shared.state.lock().remove(&namespace, &name);
                shared.webhooks.keep(&namespace, &name, "", &[]);
            }
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                // There is no such resource, so there are no rules; the list is tried again, ever later.
                shared.keep(&[]);
                metrics.follows(NAME, 0);
            }
            Err(error) => {
                metrics.failed(NAME);
                tracing::warn!(%error, "the watch of PodTransitionRules failed; it is taken up again with back-off");
            }
        }
        shared.rules_seen.send_modify(|count| *count += 1);
    }
}

impl Shared {
    /// Takes over a rule object.
    pub(super) fn take(self: &Arc<Self>, object: Watched) {
        let record = match object.0 {
            Ok(object) => Record::new(object),
            Err(error) => {
                let metadata = error.metadata;
                let (namespace, name) =
                    (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
                tracing::warn!(namespace, name, error = %error.error, "a PodTransitionRule can't be read; it refuses every pod of its namespace");
                Record {
                    uid: metadata.uid.unwrap_or_default(),
                    generation: metadata.generation.unwrap_or_default(),
                    version: metadata.resource_version.unwrap_or_default(),
                    set: Arc::new(PodTransitionRule::unreadable(&namespace, &name, &error.error)),
                    object: None,
                    ledger: Arc::new(Ledger::default()),
                    status: Arc::default(),
                    read_after: None,
                }
            }
        };
        let namespace = record.set.namespace.clone();
        let rules: Vec<String> = record.set.rules.iter().map(|rule| rule.name.clone()).collect();
        self.webhooks.keep(&namespace, &record.set.name, &record.uid, &rules);
        let is_new = self.state.lock().put(record, &self.pods, true);
        if is_new {
            self.spawn(lane::run(self.clone(), namespace));
        }
    }

    /// Takes over a rule object that was read or written here. One that the watch knows to be gone, or doesn't know yet, is left to it.
    pub(super) fn learn(&self, object: PodTransitionRule) {
        self.state.lock().put(Record::new(object), &self.pods, false);
    }

    /// A list of all rule objects is complete.
    fn keep(&self, listed: &[(String, String)]) {
        let gone = self.state.lock().keep(listed);
        gone.iter().for_each(|(namespace, name)| self.webhooks.keep(namespace, name, "", &[]));
    }
}
