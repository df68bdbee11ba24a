//! The interface of the crate.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use parking_lot::Mutex;
use podward_core::rules::{CheckRequest, OtherChecks, check_requests};
use podward_core::{Checks, Operations, PodPlan};
use podward_kube_util::work_queue::stream;
use podward_kube_util::{CachedPod, PodKey, WorkQueue};
use podward_runtime::address_policy::GuardedDialer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::context::RuleContext;
use super::observers::RuleObservers;
use super::state::{PodRules, RuleCache, other_checks, refusal_text};
use super::worker::{
    OutsidePods, OwnerReplicas, ReadBarrier, RuleWebhooks, TerminatingRules, follow_owners, follow_rules,
    rules_are_known,
};

/// The PodTransitionRules of the cluster. Clones share them.
#[derive(Clone)]
pub struct Rules {
    pub(crate) context: Arc<RuleContext>,
}

impl Rules {
    /// Follows PodTransitionRules until `stop`, and calls their webhooks through `dialer`. Also returns the pods to
    /// reconcile again because the result of their checks changed.
    pub fn start(
        client: Client,
        identity: &str,
        pods: Store<CachedPod>,
        observers: RuleObservers,
        dialer: GuardedDialer,
        stop: CancellationToken,
    ) -> (Self, impl Stream<Item = ObjectRef<CachedPod>> + Send + 'static) {
        let to_reconcile = Arc::new(WorkQueue::default());
        let cache = Arc::new(Mutex::new(RuleCache::default()));
        let RuleObservers { metrics, watches, events, traces } = observers;
        let changed = {
            let cache = cache.clone();
            move |namespace: &str| cache.lock().mark_namespace_changed(namespace)
        };
        let webhook_metrics = metrics.webhooks.clone();
        let webhooks =
            RuleWebhooks::new(client.clone(), changed, events, webhook_metrics, traces, dialer, stop.clone());
        let context = Arc::new(RuleContext {
            holder: format!("{identity}/{:016x}", fastrand::u64(..)),
            cache,
            barrier: ReadBarrier::default(),
            owners: OwnerReplicas::new(client.clone()),
            outside_pods: OutsidePods::new(client.clone()),
            webhooks,
            terminating: TerminatingRules::default(),
            client,
            pods,
            to_reconcile: to_reconcile.clone(),
            pod_events: tokio::sync::watch::channel(0).0,
            rule_events: tokio::sync::watch::channel(0).0,
            metrics,
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        context.spawn(follow_rules(context.clone(), watches));
        context.spawn(follow_owners(context.clone()));
        let closing = to_reconcile.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            closing.close();
        });
        let pods = stream(to_reconcile).map(|key: PodKey| key.object_ref());
        (Rules { context }, pods)
    }

    /// Waits until all tasks and calls have ended, after `stop`.
    pub async fn stopped(&self) {
        self.context.tasks.close();
        self.context.tasks.wait().await;
        self.context.webhooks.stopped().await;
    }

    /// Processes an event of the watch of pods, after the store has applied it.
    pub fn observe_event(&self, event: &watcher::Event<CachedPod>) {
        let context = &self.context;
        {
            let mut cache = context.cache.lock();
            match event {
                watcher::Event::Apply(pod) => {
                    let stored = context.pods.get(&ObjectRef::from_obj(pod));
                    cache.observe_pod(&stored.unwrap_or_else(|| Arc::new(pod.clone())), true);
                }
                watcher::Event::Delete(pod) => cache.pod_deleted(pod),
                watcher::Event::InitDone => cache.relist_pods(&context.pods),
                watcher::Event::Init | watcher::Event::InitApply(_) => return,
            }
        }
        context.pod_events.send_modify(|count| *count += 1);
    }

    /// Processes a pod that this controller has written and that the watch has not delivered yet.
    pub fn observe_write(&self, pod: &Arc<CachedPod>) {
        self.context.cache.lock().observe_pod(pod, false);
    }

    /// Returns the results of the rules' checks of `pod`. If the cache may lack a rule, this starts to look up the
    /// rules, and the pod is reconciled again when they are known.
    pub fn checks(&self, pod: &CachedPod) -> PodRules {
        let view = pod.view();
        let requests = if view.terminating { Vec::new() } else { check_requests(view.labels) };
        let unknown = rules_are_known(&self.context, pod, &requests).err();
        // Before the cache is locked.
        let skipped = pod.skipped_rules();
        PodRules::of(&self.context.cache.lock(), pod, &skipped, requests, unknown)
    }

    /// Stores the results of all checks of `pod` other than rules: the hooks that `plan` waits for, and `outside`.
    /// Budgets are granted only to pods that no other check refuses.
    pub fn set_other_checks(&self, pod: &CachedPod, rules: &PodRules, plan: &PodPlan, outside: &dyn Checks) {
        let operations = Operations::parse(pod.view().labels);
        let results = rules.requests().iter().map(|request| {
            let result = match rules.are_known() {
                true => other_checks(request, &operations, plan, outside),
                false => OtherChecks::Unknown,
            };
            (request.clone(), result)
        });
        self.context.cache.lock().set_other_checks(&pod.key(), pod.uid(), results.collect());
    }

    /// Returns which rules refuse `request` of a pod of `namespace`, why, and what comes next, shortened for an event.
    /// `rules` are the results for the pod.
    pub fn describe_refusals(&self, namespace: &str, rules: &PodRules, request: &CheckRequest) -> String {
        refusal_text(&self.context.cache.lock(), namespace, rules, request)
    }

    /// Drops the state of the pod with this UID, which is gone.
    pub fn forget_pod(&self, uid: &str) {
        self.context.barrier.forget(uid);
    }
}
