//! Lists PodTransitionRules for the [read barrier](super::read_barrier).

use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use podward_api::PodTransitionRule;
use podward_core::rules::CheckRequest;
use podward_kube_util::CachedPod;
use podward_runtime::retry::{API_SERVER, api_call, delay_after};
use tokio::time::{Instant, timeout_at};

use super::super::context::RuleContext;
use super::read_barrier::BarrierState;
use super::rule_release::is_terminating;

/// The watch must deliver what was listed within this time. Then the rules are listed again.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns `Ok` if the cache contains all rules that apply to `requests` of `pod`.
///
/// # Errors
/// When it may lack a rule; the text is the reason. Then the pod is reconciled again when the rules are known.
pub(crate) fn rules_are_known(
    context: &Arc<RuleContext>,
    pod: &CachedPod,
    requests: &[CheckRequest],
) -> Result<(), String> {
    match context.barrier.enter(pod, requests) {
        BarrierState::Passed => Ok(()),
        BarrierState::Waiting(reason, is_new) => {
            if is_new {
                context.spawn(run_lists(context.clone(), pod.namespace().to_owned()));
            }
            Err(reason)
        }
    }
}

/// Lists the rules of `namespace` until no check request waits.
async fn run_lists(context: Arc<RuleContext>, namespace: String) {
    let mut failures = 0;
    while let Some(batch) = context.barrier.next_list(&namespace) {
        let (pods, delay) = match list(&context, &namespace).await {
            Ok(listed) => {
                failures = 0;
                until_cached(&context, &namespace, listed).await;
                (context.barrier.list_succeeded(&namespace, batch), None)
            }
            Err(error) => {
                tracing::warn!(
                    namespace,
                    %error,
                    "could not list PodTransitionRules; operations wait for it, and it is retried"
                );
                failures += 1;
                let pods = context.barrier.list_failed(&namespace, batch, error);
                (pods, Some(delay_after(API_SERVER, failures)))
            }
        };
        pods.into_iter().for_each(|pod| context.to_reconcile.push(pod));
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
    }
}

/// The name, UID and generation of a PodTransitionRule.
type ListedRule = (String, String, i64);

async fn list(context: &RuleContext, namespace: &str) -> Result<Vec<ListedRule>, String> {
    let api: Api<PodTransitionRule> = Api::namespaced(context.client.clone(), namespace);
    let params = ListParams::default();
    let listed = match api_call(api.list_metadata(&params)).await {
        Ok(listed) => listed,
        // The CRD is not installed, so there are no rules.
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let read = |object: &PartialObjectMeta<PodTransitionRule>| {
        (object.name_any(), object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or_default())
    };
    // Those that are being deleted do not apply, and are not in the cache.
    let applying = listed.items.iter().filter(|object| !is_terminating(*object));
    Ok(applying.map(read).collect())
}

/// Waits until the cache has contained everything in `listed`.
pub(crate) async fn until_cached(context: &RuleContext, namespace: &str, mut listed: Vec<ListedRule>) {
    let mut events = context.rule_events.subscribe();
    let mut until = Instant::now() + WATCH_TIMEOUT;
    loop {
        events.mark_unchanged();
        if !are_missing(context, namespace, &mut listed) {
            return;
        }
        // A rule that was deleted or recreated since never appears as listed. Then a newer list serves as well. Events of
        // other rules do not change the time.
        if timeout_at(until, events.changed()).await.is_err() {
            let missing = listed.last().map(|(name, ..)| name);
            tracing::warn!(
                namespace,
                ?missing,
                "the watch of PodTransitionRules is behind; operations wait for it"
            );
            if let Ok(newer) = list(context, namespace).await {
                listed = newer;
            }
            until = Instant::now() + WATCH_TIMEOUT;
        }
    }
}

/// Returns true if the cache lacks one of `listed`, or has an older generation. Removes the rules at the end of
/// `listed` that the cache contains.
fn are_missing(context: &RuleContext, namespace: &str, listed: &mut Vec<ListedRule>) -> bool {
    let cache = context.cache.lock();
    let records = cache.namespaces.get(namespace).map(|rules| &rules.records);
    let is_cached = |(name, uid, generation): &mut ListedRule| {
        let record = records.and_then(|records| records.get(name));
        record.is_some_and(|record| record.uid == *uid && record.generation >= *generation)
    };
    while listed.pop_if(is_cached).is_some() {}
    !listed.is_empty()
}
