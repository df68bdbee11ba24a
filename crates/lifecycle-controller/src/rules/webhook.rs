//! Asks the webhooks of rules, over the HTTP protocol of KusionStack's PodTransitionRules.
//!
//! ```text
//!  reconcile ──► consult ──► machine (one a rule): what to ask, what answers mean
//!      ▲            │           ▲   │
//!      │            │           │   ▼
//!      └── woken ◄──┴──────── driver (one a rule) ──► client: POST, and GET while a task goes on
//! ```
//!
//! # Guarantees
//! - An answer counts for the askings that it was given about, and for no other.
//! - Tasks go on after a restart, from what [`Webhooks::consult`] gave to be put on record.
//! - Nothing that a webhook does harms anybody but its own rule: answers, times, calls and tasks are bounded.

mod alarm;
mod answer;
mod asking;
mod client;
mod driver;
mod history;
mod machine;
mod metrics;
mod request;
mod room;
mod task;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use podward_api::pod_transition_rule::{FailurePolicy, TransitionRuleWebhook, WebhookStatus};
use podward_core::UnixNanos;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::traces::Traces;

use driver::Driver;
use machine::{Machine, PollTimes, Settings};
use room::Room;

pub(crate) use asking::{Asking, Subject};
pub(crate) use machine::Verdict;
pub(crate) use metrics::WebhookMetrics;

/// A rule: the namespace and the name of its object, the object's UID, and its own name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RuleId {
    pub(crate) namespace: String,
    pub(crate) object: String,
    pub(crate) uid: String,
    pub(crate) rule: String,
}

/// Where pods are read that webhooks are told of.
pub(crate) trait Pods: Send + Sync + 'static {
    /// The JSON of a pod; `None` when there is none of that name and UID. Asked only for rules with parameters that are read from the
    /// pod, for up to 16 pods at a time.
    ///
    /// # Errors
    /// When it can't be read: then nothing is asked, and it is tried again.
    fn json<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, String>>;
}

/// Is told that a rule's webhook fails, and why; and whether pods pass all the same.
type Failing = dyn Fn(&RuleId, &str, bool) + Send + Sync;

/// Who hears of calls, from any thread. Clones are the same.
#[derive(Clone)]
pub(crate) struct Ears {
    /// A rule is to be consulted again, because its webhook says something else.
    pub(crate) woken: Arc<dyn Fn(&RuleId) + Send + Sync>,
    /// Called at the first failure of a webhook, and then ever less often.
    pub(crate) failing: Arc<Failing>,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) traces: Traces,
}

/// What a webhook says, and what is to be put on record of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Consulted {
    /// In step with the subjects.
    pub(crate) verdicts: Vec<Verdict>,
    /// For `status.ruleStates[].webhookStatus`.
    pub(crate) status: WebhookStatus,
}

/// The webhooks of all rules. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Webhooks {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Mutex<BTreeMap<RuleId, Arc<Driver>>>,
    pods: Arc<dyn Pods>,
    ears: Ears,
    room: Arc<Room>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Webhooks {
    /// Nothing is asked until a rule is consulted, nor after `stop`.
    pub(crate) fn new(pods: Arc<dyn Pods>, ears: Ears, stop: CancellationToken) -> Self {
        let tasks = TaskTracker::new();
        tasks.close();
        Self {
            shared: Arc::new(Shared {
                rules: Mutex::default(),
                pods,
                ears,
                room: Arc::default(),
                stop,
                tasks,
            }),
        }
    }

    /// What the webhook of a rule says to `subjects`: all pods that wait for the rule, in the stage that it is for, and that have no pass
    /// on record. What is not known is asked from now on. `stored` is what was put on record of the rule last; it is looked at when the
    /// rule isn't known here (yet).
    pub(crate) fn consult(
        &self,
        id: &RuleId,
        webhook: &TransitionRuleWebhook,
        stage: Option<&str>,
        subjects: &[Subject],
        stored: Option<&WebhookStatus>,
    ) -> Consulted {
        let now = now();
        let driver = self.driver(id, webhook, stored, now);
        let consulted = driver.consult(webhook, stage, subjects, now);
        driver.ring();
        consulted
    }

    /// Only these rules of an object are left. Their askings are forgotten, calls of others end.
    pub(crate) fn keep(&self, namespace: &str, object: &str, is_left: impl Fn(&RuleId) -> bool) {
        let first = RuleId {
            namespace: namespace.to_owned(),
            object: object.to_owned(),
            uid: String::new(),
            rule: String::new(),
        };
        let mut rules = self.shared.rules.lock();
        let of_object = rules.range(first..).map(|(id, _)| id);
        let of_object = of_object.take_while(|id| id.namespace == namespace && id.object == object);
        let ended: Vec<RuleId> = of_object.filter(|id| !is_left(id)).cloned().collect();
        ended.iter().filter_map(|id| rules.remove(id)).for_each(|driver| driver.end());
    }

    /// Waits until no call is left, after `stop`.
    pub(crate) async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }

    fn driver(
        &self,
        id: &RuleId,
        webhook: &TransitionRuleWebhook,
        stored: Option<&WebhookStatus>,
        now: UnixNanos,
    ) -> Arc<Driver> {
        let shared = &self.shared;
        let mut rules = shared.rules.lock();
        if let Some(driver) = rules.get(id) {
            return driver.clone();
        }
        let name = format!("{}/{}/{}", id.namespace, id.object, id.rule);
        let machine = Machine::new(name, settings(webhook), stored, now);
        let driver = Arc::new(Driver::new(
            id.clone(),
            machine,
            shared.pods.clone(),
            shared.ears.clone(),
            shared.room.clone(),
            shared.stop.child_token(),
        ));
        shared.tasks.spawn(driver.clone().run());
        rules.insert(id.clone(), driver.clone());
        driver
    }
}

fn settings(webhook: &TransitionRuleWebhook) -> Settings {
    let client = &webhook.client_config;
    let poll = client.poll.as_ref();
    let nanos = |seconds: i64| seconds.clamp(1, 604_800).saturating_mul(1_000_000_000);
    let asked_at = poll.map(|poll| format!("{} {}", poll.url, poll.raw_query_key));
    Settings {
        place: format!("{} {}", client.url, asked_at.unwrap_or_default()),
        ignores_failures: webhook.failure_policy == FailurePolicy::Ignore,
        poll: poll.map(|poll| PollTimes {
            interval: nanos(poll.interval_seconds),
            timeout: nanos(poll.timeout_seconds),
        }),
    }
}

fn now() -> UnixNanos {
    UnixNanos(i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
}

/// What a stranger wrote, in a length that fits into a message.
pub(super) fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
