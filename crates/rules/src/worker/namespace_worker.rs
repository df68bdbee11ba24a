//! The worker of one namespace: decides when something has changed, and writes at most once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use podward_runtime::retry::{API_SERVER, delay_after};

use super::super::context::RuleContext;
use super::decision::{NamespaceDecision, decide};

/// The shortest interval between two writes of an object's status.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Changes within this time are decided about together.
const GATHER_DELAY: Duration = Duration::from_millis(20);

/// The longest pause after a list of pods that took long.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Decides about `namespace` after each change, until it has no PodTransitionRule.
pub(super) async fn run(context: Arc<RuleContext>, namespace: String) {
    let changed = context.cache.lock().namespaces.get(&namespace).map(|rules| rules.changed.clone());
    let Some(changed) = changed else { return };
    let (mut failures, mut recheck_at) = (0, None);
    loop {
        let retry_at =
            context.cache.lock().namespaces.get(&namespace).and_then(|rules| rules.unstored.next_retry());
        match recheck_at.into_iter().chain(retry_at).min() {
            None => changed.notified().await,
            Some(at) => drop(tokio::time::timeout_at(Instant::into(at), changed.notified()).await),
        }
        mark_due(&context, &namespace, &mut recheck_at);
        tokio::time::sleep(GATHER_DELAY).await;
        let began = Instant::now();
        let NamespaceDecision { error, wrote, recheck_in, listing } =
            decide_changed(&context, &namespace, began).await;
        recheck_at = recheck_at.into_iter().chain(recheck_in.map(|delay| began + delay)).min();
        if error.is_some() {
            failures += 1;
            tokio::time::sleep(delay_after(API_SERVER, failures)).await;
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
        // Also after a failure, because some objects may have been written. Lists of pods take at most a fifth of the time.
        let pause = if wrote { WRITE_INTERVAL } else { Duration::ZERO };
        tokio::time::sleep(pause.max((4 * listing).min(LONGEST_PAUSE))).await;
    }
}

/// Marks what is to be decided about again at this time. Also when the worker was woken by a change, which may concern
/// other rule sets.
fn mark_due(context: &RuleContext, namespace: &str, recheck_at: &mut Option<Instant>) {
    let (now, mut cache) = (Instant::now(), context.cache.lock());
    let Some(rules) = cache.namespaces.get_mut(namespace) else { return };
    if recheck_at.take_if(|at| *at <= now).is_some() {
        rules.mark_all_changed();
    }
    rules.mark_changed(&rules.unstored.due(now));
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

async fn decide_changed(context: &Arc<RuleContext>, namespace: &str, now: Instant) -> NamespaceDecision {
    let Some(sets) = context.cache.lock().take_changed(namespace) else {
        return NamespaceDecision::default();
    };
    let decision = decide(context, namespace, &sets, now).await;
    if let Some(error) = &decision.error {
        tracing::warn!(
            namespace,
            error,
            "could not decide about rules; pods that need a budget wait, and it is retried"
        );
    }
    if let Some(rules) = context.cache.lock().namespaces.get_mut(namespace) {
        rules.error = decision.error.clone();
    }
    decision
}
