//! Webhook rules: between what is decided and who asks over HTTP.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{RuleState, TransitionRule, WebhookStatus};
use podward_core::UnixNanos;
use podward_core::rules::{Answer, Asking};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::fresh::DEADLINE;
use super::state::{Known, Record};
use super::webhook::{self, Ears, Pods, RuleId, Subject, Verdict, WebhookMetrics, Webhooks};
use crate::events::Events;
use crate::traces::Traces;

/// The webhooks of all rules.
pub(super) struct RuleWebhooks {
    webhooks: Webhooks,
}

impl RuleWebhooks {
    /// Nothing is asked until somebody is consulted. When a webhook says something else, the rule's namespace is decided about anew;
    /// when one fails, an event of its PodTransitionRule says so.
    pub(super) fn new(
        client: Client,
        shared: Weak<Shared>,
        events: Events,
        metrics: WebhookMetrics,
        traces: Traces,
        stop: CancellationToken,
    ) -> Self {
        let woken = move |rule: &RuleId| {
            if let Some(shared) = shared.upgrade() {
                shared.ring(&rule.namespace);
            }
        };
        let failing = move |rule: &RuleId, why: &str, passes: bool| {
            events.warning_about(reference(rule), "WebhookFailing", failing_words(&rule.rule, why, passes));
        };
        let ears = Ears { woken: Arc::new(woken), failing: Arc::new(failing), metrics, traces };
        RuleWebhooks { webhooks: Webhooks::new(Arc::new(Reader { client }), ears, stop) }
    }

    /// What the webhook of `rule` says to `subjects`, in step with them, and what is to be put on record of it. Those that it hasn't been
    /// asked about are asked about from now on.
    pub(super) fn consult(
        &self,
        record: &Record,
        rule: &TransitionRule,
        subjects: &[(&Known, &Asking)],
    ) -> (Vec<Option<Answer>>, Option<RuleState>) {
        let Some(webhook) = &rule.webhook else { return (vec![None; subjects.len()], None) };
        let id = RuleId {
            namespace: record.set.namespace.clone(),
            object: record.set.name.clone(),
            uid: record.uid.clone(),
            rule: rule.name.clone(),
        };
        let asked: Vec<Subject> = subjects
            .iter()
            .map(|(known, asking)| {
                let asking = webhook::Asking {
                    uid: known.pod.uid().to_owned(),
                    operation: asking.operation.clone(),
                    asked_at: UnixNanos(asking.since()),
                };
                Subject::new(known.pod.key().name, &asking)
            })
            .collect();
        let mut states = record.status.rule_states.iter();
        let stored =
            states.find(|state| state.name == rule.name).and_then(|state| state.webhook_status.as_ref());
        let consulted = self.webhooks.consult(&id, webhook, rule.stage.as_deref(), &asked, stored);
        let answers = consulted.verdicts.into_iter().map(|verdict| match verdict {
            Verdict::Passed | Verdict::Ignored(_) => Some(Answer::Approved),
            Verdict::Rejected(reason) => Some(Answer::Rejected(reason)),
            Verdict::Waiting(reason) => Some(Answer::Waiting(reason)),
        });
        let has_state = consulted.status != WebhookStatus::default();
        let state =
            has_state.then(|| RuleState { name: rule.name.clone(), webhook_status: Some(consulted.status) });
        (answers.collect(), state)
    }

    /// Only these rules of the object of that name are left, which has this UID.
    pub(super) fn keep(&self, namespace: &str, object: &str, uid: &str, rules: &[String]) {
        self.webhooks.keep(namespace, object, |id| id.uid == uid && rules.contains(&id.rule));
    }

    /// Waits until no call is left, after the leadership.
    pub(super) async fn stopped(&self) {
        self.webhooks.stopped().await;
    }
}

fn reference(rule: &RuleId) -> ObjectReference {
    ObjectReference {
        api_version: Some(PodTransitionRule::api_version(&()).into_owned()),
        kind: Some(PodTransitionRule::kind(&()).into_owned()),
        name: Some(rule.object.clone()),
        namespace: Some(rule.namespace.clone()),
        uid: Some(rule.uid.clone()),
        ..ObjectReference::default()
    }
}

fn failing_words(rule: &str, why: &str, passes: bool) -> String {
    let what = match passes {
        true => "go on without it, as failurePolicy Ignore says",
        false => "wait, as failurePolicy Fail says, and it is asked again, at last every 30 s",
    };
    let why = webhook::shortened(why, 500);
    format!(
        "the webhook of rule {rule} fails: {why}. Pods that ask {what}. See that it answers, and that caBundle fits its certificate"
    )
}

/// Reads pods whose fields webhooks are told.
struct Reader {
    client: Client,
}

impl Pods for Reader {
    fn json<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, String>> {
        Box::pin(async move {
            let pods: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
            match tokio::time::timeout(DEADLINE, pods.get_opt(pod)).await {
                Ok(Ok(Some(found))) if found.metadata.uid.as_deref() == Some(uid) => {
                    serde_json::to_value(found)
                        .map(|json| Some(Arc::new(json)))
                        .map_err(|error| error.to_string())
                }
                Ok(Ok(_)) => Ok(None),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer from the API server within {DEADLINE:?}")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_fails_is_told_on_its_rule_object() {
        let named = |text: &str| text.to_owned();
        let rule = RuleId {
            namespace: named("shop"),
            object: named("web"),
            uid: named("u"),
            rule: named("outside"),
        };
        let about = reference(&rule);
        assert_eq!(about.api_version.as_deref(), Some("apps.kusionstack.io/v1alpha1"));
        assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("PodTransitionRule"), Some("web")));
        let told = failing_words("outside", &"x".repeat(5000), false);
        assert!(
            told.len() < 1000 && told.contains("failurePolicy Fail") && told.contains("caBundle"),
            "{told}"
        );
        assert!(failing_words("outside", "gone", true).contains("go on without it"));
    }
}
