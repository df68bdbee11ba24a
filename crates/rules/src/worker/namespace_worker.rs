//! The worker of one namespace: decides when something has changed, and writes at most once a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio::sync::Notify;

use super::super::context::RuleContext;
use super::decision::{NamespaceDecision, decide};
use super::outside_lists::OutsideLists;

/// The shortest interval between two writes of an object's status.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Changes within this time are decided about together.
const GATHER_DELAY: Duration = Duration::from_millis(20);

/// Decides about `namespace` after each change, until it has no PodTransitionRule.
pub(super) async fn run(context: Arc<RuleContext>, namespace: String) {
    let changed = context.cache.lock().namespaces.get(&namespace).map(|rules| rules.changed.clone());
    let Some(changed) = changed else { return };
    let (mut failures, mut rechecks, mut lists) = (0, BTreeMap::new(), OutsideLists::default());
    let mut marked_at = Instant::now();
    loop {
        let retry_at = {
            let cache = context.cache.lock();
            cache.namespaces.get(&namespace).and_then(|rules| rules.unstored.next_retry(marked_at))
        };
        let wake_at = rechecks.values().copied().chain(retry_at).chain(lists.due_at()).min();
        until_due(&changed, wake_at, &mut lists, &namespace).await;
        marked_at = Instant::now();
        mark_due(&context, &namespace, &mut rechecks, &mut lists, marked_at);
        // All that is marked so far is decided about now.
        let _ = changed.notified().now_or_never();
        tokio::time::sleep(GATHER_DELAY).await;
        let began = Instant::now();
        let decision = decide_changed(&context, &namespace, &mut lists, began).await;
        let NamespaceDecision { error, wrote, rechecks: next, .. } = decision;
        // A time of an earlier decision does not count any more. Rule sets that were decided about together are decided
        // about together again, with one list of pods.
        rechecks.extend(next);
        if error.is_some() {
            failures += 1;
            // A list does not count for long.
            tokio::select! {
                () = tokio::time::sleep(delay_after(API_SERVER, failures)) => {}
                () = list_ended(&mut lists, &namespace) => {}
            }
            context.cache.lock().mark_namespace_changed(&namespace);
        } else {
            failures = 0;
            if drop_if_empty(&context, &namespace) {
                return;
            }
            if !wrote {
                // Decisions take at most a fifth of the time, however often pods change.
                tokio::time::sleep((4 * began.elapsed()).min(WRITE_INTERVAL / 5)).await;
            }
        }
        if wrote {
            // Also after a failure, because some objects may have been written.
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }
}

/// Waits for a change, for `wake_at`, or for the end of the list that runs.
async fn until_due(changed: &Notify, wake_at: Option<Instant>, lists: &mut OutsideLists, namespace: &str) {
    tokio::select! {
        // A list that has ended is used now. It does not count for long, and the next decision may be seconds later.
        biased;
        () = list_ended(lists, namespace) => {}
        () = changed.notified() => {}
        () = sleep_until(wake_at) => {}
    }
}

/// Waits for the end of the list that runs; forever if none does.
async fn list_ended(lists: &mut OutsideLists, namespace: &str) {
    lists.ended().await;
    if let Some(error) = lists.error() {
        tracing::warn!(
            namespace,
            error,
            "could not list pods for rules; the pods that need these budgets wait, and it is retried"
        );
    }
}

/// Sleeps until `at`, or forever.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Marks what is to be decided about again at the time `now`. Also when the worker was woken by a change, which may
/// concern other rule sets.
fn mark_due(
    context: &RuleContext,
    namespace: &str,
    rechecks: &mut BTreeMap<String, Instant>,
    lists: &mut OutsideLists,
    now: Instant,
) {
    let mut cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get_mut(namespace) else { return };
    let due: Vec<String> = rechecks.extract_if(.., |_, at| *at <= now).map(|(set, _)| set).collect();
    rules.mark_changed(&due);
    rules.mark_changed(&rules.unstored.due(now));
    rules.mark_changed(&lists.due(now));
}

/// Drops the state of `namespace` if it has no PodTransitionRule. Returns true if it did.
fn drop_if_empty(context: &RuleContext, namespace: &str) -> bool {
    // Under the lock: an object that is created now starts another worker.
    let mut cache = context.cache.lock();
    let is_dropped = cache.drop_if_empty(namespace);
    if is_dropped {
        context.owners.retain(namespace, |_| false);
        context.outside_pods.retain(namespace, |_| false);
        context.metrics.forget_namespace(namespace);
    }
    is_dropped
}

async fn decide_changed(
    context: &Arc<RuleContext>,
    namespace: &str,
    lists: &mut OutsideLists,
    now: Instant,
) -> NamespaceDecision {
    let Some(sets) = context.cache.lock().take_changed(namespace) else {
        return NamespaceDecision::default();
    };
    let decision = decide(context, namespace, &sets, lists, now).await;
    lists.decided();
    if let Some(error) = &decision.error {
        tracing::warn!(
            namespace,
            error,
            "could not decide about rules; pods that need a budget wait, and it is retried"
        );
    }
    let errors = lists.errors().into_iter().chain(decision.errors.clone());
    let told = {
        let mut cache = context.cache.lock();
        cache.namespaces.get_mut(namespace).map(|rules| rules.set_errors(&sets, errors)).unwrap_or_default()
    };
    told.into_iter().for_each(|pod| context.to_reconcile.push(pod));
    decision
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of two events is noticed must not depend on chance.
    #[tokio::test]
    async fn a_list_that_has_ended_is_noticed_before_a_change() {
        let changed = Notify::new();
        for _ in 0..50 {
            let mut lists = OutsideLists::with_ended().await;
            changed.notify_one();
            until_due(&changed, None, &mut lists, "shop").await;
            assert_eq!(lists.due(Instant::now()), ["web".to_owned()].into());
        }
    }
}
