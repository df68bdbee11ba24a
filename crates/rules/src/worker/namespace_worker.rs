//! The worker of one namespace: decides when something has changed, and writes at most once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use podward_runtime::retry::{API_SERVER, delay_after};

use super::super::context::RuleContext;
use super::super::state::OWNER_RECHECK_DELAY;
use super::decision::{DecisionOutcome, NamespaceDecision, decide};

/// The shortest interval between two writes of an object's status.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Changes within this time are decided about together.
const GATHER_DELAY: Duration = Duration::from_millis(20);

/// Decides about `namespace` after each change, until it has no PodTransitionRule.
pub(super) async fn run(context: Arc<RuleContext>, namespace: String) {
    let changed = context.cache.lock().namespaces.get(&namespace).map(|rules| rules.changed.clone());
    let Some(changed) = changed else { return };
    let (mut failures, mut recheck_at) = (0, None);
    loop {
        match recheck_at {
            None => changed.notified().await,
            Some(at) => drop(tokio::time::timeout_at(Instant::into(at), changed.notified()).await),
        }
        // Also when the worker was woken by a change, which may concern other rule sets.
        if recheck_at.take_if(|at| *at <= Instant::now()).is_some() {
            context.cache.lock().mark_namespace_changed(&namespace);
        }
        tokio::time::sleep(GATHER_DELAY).await;
        let began = Instant::now();
        let NamespaceDecision { outcome, wrote, expires } = decide_changed(&context, &namespace, began).await;
        if expires {
            recheck_at.get_or_insert(began + OWNER_RECHECK_DELAY);
        }
        match outcome {
            DecisionOutcome::Done => {
                if drop_if_empty(&context, &namespace) {
                    return;
                }
                if wrote {
                    failures = 0;
                } else {
                    // Decisions take at most a fifth of the time, however often pods change.
                    tokio::time::sleep((4 * began.elapsed()).min(WRITE_INTERVAL / 5)).await;
                }
            }
            DecisionOutcome::Conflict => context.cache.lock().mark_namespace_changed(&namespace),
            DecisionOutcome::Failed(_) => {
                failures += 1;
                tokio::time::sleep(delay_after(API_SERVER, failures)).await;
                context.cache.lock().mark_namespace_changed(&namespace);
            }
        }
        // Also after a failure, because some objects may have been written.
        if wrote {
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }
}

/// Drops the state of `namespace` if it has no PodTransitionRule. Returns true if it did.
fn drop_if_empty(context: &RuleContext, namespace: &str) -> bool {
    // Under the lock: an object that is created now starts another worker.
    let mut cache = context.cache.lock();
    let is_dropped = cache.drop_if_empty(namespace);
    if is_dropped {
        context.owners.retain(namespace, |_| false);
        context.metrics.forget_namespace(namespace);
    }
    is_dropped
}

async fn decide_changed(context: &Arc<RuleContext>, namespace: &str, now: Instant) -> NamespaceDecision {
    let Some(sets) = context.cache.lock().take_changed(namespace) else {
        return DecisionOutcome::Done.into();
    };
    let decision = decide(context, namespace, &sets, now).await;
    let error = match &decision.outcome {
        DecisionOutcome::Failed(error) => Some(error.clone()),
        _ => None,
    };
    if let Some(error) = &error {
        tracing::warn!(
            namespace,
            error,
            "could not decide about rules; pods that need a budget wait, and it is retried"
        );
    }
    if let Some(rules) = context.cache.lock().namespaces.get_mut(namespace) {
        rules.error = error;
    }
    decision
}
