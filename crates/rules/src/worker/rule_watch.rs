//! The watch of PodTransitionRules, and the changes of owners.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use podward_kube_util::watched::WatchMetrics;

use super::super::context::RuleContext;
use super::consult_webhooks::end_unused_webhooks;
use super::namespace_worker;
use super::rule_objects::{WatchedRule, record_of};
use super::rule_release::{is_terminating, release};

/// The name of the watch in metrics.
const NAME: &str = "podtransitionrules";

/// Follows PodTransitionRules. A failed watch leaves the cache as it is; the [read barrier](super::read_barrier) keeps
/// operations from relying on it.
pub(crate) async fn follow_rules(context: Arc<RuleContext>, metrics: WatchMetrics) {
    let api: Api<WatchedRule> = Api::all(context.client.clone());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = pin!(metrics.observe(NAME, true, events));
    let mut listed: Vec<(String, String)> = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                if !is_terminating(&object) {
                    listed.push((object.namespace().unwrap_or_default(), object.name_any()));
                }
                apply(&context, object);
            }
            Ok(watcher::Event::InitDone) => {
                retain(&context, &listed);
                metrics.follows(NAME, listed.len());
            }
            Ok(watcher::Event::Apply(object)) => apply(&context, object),
            Ok(watcher::Event::Delete(object)) => {
                remove(&context, &object.namespace().unwrap_or_default(), &object.name_any());
            }
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                // The CRD is not installed, so there are no rules. The list is retried with back-off.
                retain(&context, &[]);
                metrics.follows(NAME, 0);
            }
            Err(error) => {
                tracing::warn!(%error, "the watch of PodTransitionRules failed; it is retried with back-off");
            }
        }
        context.rule_events.send_modify(|count| *count += 1);
    }
}

/// Stores an object of the watch, or removes it if it is being deleted. Starts a namespace worker for a new namespace.
fn apply(context: &Arc<RuleContext>, object: WatchedRule) {
    if is_terminating(&object) {
        remove(context, &object.namespace().unwrap_or_default(), &object.name_any());
        release(context, &object);
        return;
    }
    let record = record_of(object);
    let (namespace, name) = (record.set.namespace.clone(), record.set.name.clone());
    let is_new = context.cache.lock().put(record, &context.pods, true);
    end_unused_webhooks(context, &namespace, &name);
    if is_new {
        context.spawn(namespace_worker::run(context.clone(), namespace));
    }
}

fn remove(context: &RuleContext, namespace: &str, name: &str) {
    context.cache.lock().remove(namespace, name);
    end_unused_webhooks(context, namespace, name);
}

/// Removes the objects that are not in `listed`, a complete list.
fn retain(context: &RuleContext, listed: &[(String, String)]) {
    let gone = context.cache.lock().retain(listed);
    gone.iter().for_each(|(namespace, name)| end_unused_webhooks(context, namespace, name));
}

/// Decides about a namespace again when one of its owners wants another number of pods.
pub(crate) async fn follow_owners(context: Arc<RuleContext>) {
    while let Some(namespace) = context.owners.next_changed().await {
        context.cache.lock().mark_namespace_changed(&namespace);
    }
}
