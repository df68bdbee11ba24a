//! The drivers of all webhook rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use podward_api::pod_transition_rule::{TransitionRuleWebhook, WebhookStatus};
use podward_core::UnixNanos;
use podward_kube_util::now;
use podward_runtime::address_policy::GuardedDialer;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call_slots::CallSlots;
use super::driver::WebhookDriver;
use super::machine::{WaitingPod, WebhookMachine, WebhookSettings, WebhookVerdict};
use super::observers::{PodReader, PodReads, WebhookObservers};
use super::rule_id::WebhookRuleId;

/// Pods that are read at the same time for all calls.
const MAX_READS: usize = 16;

/// The verdicts of a webhook, and what to store of its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WebhookConsultation {
    /// One for each pod, in the same order.
    pub(crate) verdicts: Vec<WebhookVerdict>,
    /// For `status.ruleStates[].webhookStatus`.
    pub(crate) status: WebhookStatus,
}

/// The webhooks of all rules. Clones share them.
#[derive(Clone)]
pub(crate) struct WebhookDrivers {
    inner: Arc<DriversInner>,
}

struct DriversInner {
    drivers: Mutex<BTreeMap<WebhookRuleId, Arc<WebhookDriver>>>,
    pods: Arc<PodReads>,
    observers: WebhookObservers,
    dialer: GuardedDialer,
    slots: CallSlots,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl WebhookDrivers {
    /// Returns the drivers, which connect through `dialer`. No webhook is called before its rule is consulted, nor
    /// after `stop`.
    pub(crate) fn new(
        pods: Arc<dyn PodReader>,
        observers: WebhookObservers,
        dialer: GuardedDialer,
        stop: CancellationToken,
    ) -> Self {
        let tasks = TaskTracker::new();
        tasks.close();
        let (drivers, slots) = (Mutex::default(), CallSlots::new(observers.metrics.clone()));
        let pods = Arc::new(PodReads { reader: pods, permits: Semaphore::new(MAX_READS) });
        Self { inner: Arc::new(DriversInner { drivers, pods, observers, dialer, slots, stop, tasks }) }
    }

    /// Returns the verdicts of a rule's webhook on `pods`: all pods that wait for the rule, in the rule's stage, and
    /// that have not passed. The webhook is called about those without a verdict. `stored` is the rule's stored status;
    /// it is used only when the rule has no driver yet.
    pub(crate) fn consult(
        &self,
        id: &WebhookRuleId,
        webhook: &TransitionRuleWebhook,
        stage: Option<&str>,
        pods: &[WaitingPod],
        stored: Option<&WebhookStatus>,
    ) -> WebhookConsultation {
        let now = now();
        let driver = self.driver(id, webhook, stored, now);
        let (verdicts, status) = driver.consult(webhook, stage, pods, now);
        driver.notify();
        WebhookConsultation { verdicts, status }
    }

    /// Ends the drivers of an object for which `is_left` returns false, and cancels their calls.
    pub(crate) fn retain(&self, namespace: &str, object: &str, is_left: impl Fn(&WebhookRuleId) -> bool) {
        let first = WebhookRuleId {
            namespace: namespace.to_owned(),
            object: object.to_owned(),
            uid: String::new(),
            rule: String::new(),
        };
        let mut drivers = self.inner.drivers.lock();
        let of_object = drivers.range(first..).map(|(id, _)| id);
        let of_object = of_object.take_while(|id| id.namespace == namespace && id.object == object);
        let ended: Vec<WebhookRuleId> = of_object.filter(|id| !is_left(id)).cloned().collect();
        ended.iter().filter_map(|id| drivers.remove(id)).for_each(|driver| driver.end());
    }

    /// Returns the number of rules whose webhook is called.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.inner.drivers.lock().len()
    }

    /// Waits until no call is left, after `stop`.
    pub(crate) async fn stopped(&self) {
        self.inner.tasks.wait().await;
    }

    fn driver(
        &self,
        id: &WebhookRuleId,
        webhook: &TransitionRuleWebhook,
        stored: Option<&WebhookStatus>,
        now: UnixNanos,
    ) -> Arc<WebhookDriver> {
        let inner = &self.inner;
        let mut drivers = inner.drivers.lock();
        if let Some(driver) = drivers.get(id) {
            return driver.clone();
        }
        let name = format!("{}/{}/{}", id.namespace, id.object, id.rule);
        let machine = WebhookMachine::new(name, WebhookSettings::of(webhook), stored, now);
        let driver = Arc::new(WebhookDriver::new(
            id.clone(),
            machine,
            inner.pods.clone(),
            inner.observers.clone(),
            inner.dialer.clone(),
            inner.slots.clone(),
            inner.stop.child_token(),
        ));
        inner.tasks.spawn(driver.clone().run());
        drivers.insert(id.clone(), driver.clone());
        driver
    }
}
