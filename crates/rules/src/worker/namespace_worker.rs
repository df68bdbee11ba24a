//! The worker of one namespace: decides when something has changed, and writes at most once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use podward_runtime::retry::{API_SERVER, delay_after};

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
    let (mut failures, mut recheck_at, mut lists) = (0, None, OutsideLists::default());
    let mut marked_at = Instant::now();
    loop {
        let retry_at = {
            let cache = context.cache.lock();
            cache.namespaces.get(&namespace).and_then(|rules| rules.unstored.next_retry(marked_at))
        };
        let wake_at = recheck_at.into_iter().chain(retry_at).chain(lists.due_at()).min();
        tokio::select! {
            () = changed.notified() => {}
            () = sleep_until(wake_at) => {}
            () = list_ended(&mut lists, &namespace) => {}
        }
        marked_at = Instant::now();
        mark_due(&context, &namespace, &mut recheck_at, &mut lists, marked_at);
        // All that is marked so far is decided about now.
        let _ = changed.notified().now_or_never();
        tokio::time::sleep(GATHER_DELAY).await;
        let began = Instant::now();
        let decision = decide_changed(&context, &namespace, &mut lists, began).await;
        let NamespaceDecision { error, wrote, recheck_at: next, .. } = decision;
        recheck_at = recheck_at.into_iter().chain(next).min();
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
    recheck_at: &mut Option<Instant>,
    lists: &mut OutsideLists,
    now: Instant,
) {
    let mut cache = context.cache.lock();
    let Some(rules) = cache.namespaces.get_mut(namespace) else { return };
    if recheck_at.take_if(|at| *at <= now).is_some() {
        rules.mark_all_changed();
    }
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
