//! Connects decisions with the webhooks of rules.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use podward_api::PodTransitionRule;
use podward_api::pod_transition_rule::{RuleState, TransitionRule, WebhookStatus};
use podward_api::shortened;
use podward_core::UnixNanos;
use podward_core::rules::{CheckRequest, WebhookAnswer};
use podward_kube_util::{CachedPod, Events};
use podward_runtime::address_policy::GuardedDialer;
use podward_runtime::retry::api_call;
use podward_traces::OperationTraces;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::super::state::{KnownAnswer, ObservedPod, RuleRecord};
use super::super::webhook::{
    PodReader, WaitingPod, WebhookDrivers, WebhookMetrics, WebhookObservers, WebhookRuleId, WebhookVerdict,
};

/// The webhooks of all rules.
pub(crate) struct RuleWebhooks {
    drivers: WebhookDrivers,
}

impl RuleWebhooks {
    /// Returns the webhooks. None is called before its rule is consulted. `changed` is called with a namespace when a
    /// webhook has new verdicts. Connections go through `dialer`. A webhook that fails is reported in an event of its
    /// PodTransitionRule.
    pub(crate) fn new(
        client: Client,
        changed: impl Fn(&str) + Send + Sync + 'static,
        events: Events,
        metrics: WebhookMetrics,
        traces: OperationTraces,
        dialer: GuardedDialer,
        stop: CancellationToken,
    ) -> Self {
        let failing = move |rule: &WebhookRuleId, error: &str, passes: bool| {
            events.warning_about(reference(rule), "WebhookFailing", failing_text(&rule.rule, error, passes));
        };
        let observers = WebhookObservers {
            changed: Arc::new(move |rule: &WebhookRuleId| changed(&rule.namespace)),
            failing: Arc::new(failing),
            metrics,
            traces,
        };
        RuleWebhooks {
            drivers: WebhookDrivers::new(Arc::new(ApiPodReader { client }), observers, dialer, stop),
        }
    }

    /// Returns the number of rules whose webhook is called.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.drivers.count()
    }

    /// Returns the answers of the webhook of `rule` on `pods`, in the same order, and its state to store. The answer on
    /// a pod is `None` while the webhook has not answered. The webhook is called about the pods without a verdict.
    pub(super) fn consult(
        &self,
        record: &RuleRecord,
        rule: &TransitionRule,
        pods: &[(&ObservedPod, &CheckRequest)],
    ) -> (Vec<Option<KnownAnswer>>, Option<RuleState>) {
        let Some(webhook) = &rule.webhook else { return (Vec::new(), None) };
        let id = WebhookRuleId {
            namespace: record.set.namespace.clone(),
            object: record.set.name.clone(),
            uid: record.uid.clone(),
            rule: rule.name.clone(),
        };
        let waiting: Vec<WaitingPod> =
            pods.iter().map(|(observed, request)| waiting_pod(&observed.pod, request)).collect();
        let mut states = record.status.rule_states.iter();
        let stored =
            states.find(|state| state.name == rule.name).and_then(|state| state.webhook_status.as_ref());
        let consulted = self.drivers.consult(&id, webhook, rule.stage.as_deref(), &waiting, stored);
        let answers = consulted.verdicts.into_iter().map(known_answer).collect();
        let has_state = consulted.status != WebhookStatus::default();
        let state =
            has_state.then(|| RuleState { name: rule.name.clone(), webhook_status: Some(consulted.status) });
        (answers, state)
    }

    /// Ends the calls of the object of this name, except those of these rules of the object with this UID.
    pub(super) fn retain(&self, namespace: &str, object: &str, uid: &str, rules: &[String]) {
        self.drivers.retain(namespace, object, |id| id.uid == uid && rules.contains(&id.rule));
    }

    /// Waits until no call is left, after this process stopped leading.
    pub(crate) async fn stopped(&self) {
        self.drivers.stopped().await;
    }
}

/// Returns the pod in the form of the webhook's driver. A request that is made again
/// ([`asked_again_at`](CheckRequest::asked_again_at)) is the same for the webhook: its time is in the same microsecond.
fn waiting_pod(pod: &CachedPod, request: &CheckRequest) -> WaitingPod {
    let since = UnixNanos(request.since()).whole_micros();
    WaitingPod::new(pod.key().name, pod.uid(), request.operation.clone(), since)
}

fn known_answer(verdict: WebhookVerdict) -> Option<KnownAnswer> {
    let (answer, fingerprint) = match verdict {
        WebhookVerdict::Passed | WebhookVerdict::Ignored(_) => (WebhookAnswer::Approved, None),
        WebhookVerdict::Rejected(reason) => (WebhookAnswer::Rejected(reason.text), Some(reason.fingerprint)),
        WebhookVerdict::Waiting(reason) => (WebhookAnswer::Waiting(reason.text), Some(reason.fingerprint)),
        WebhookVerdict::NotAnswered => return None,
    };
    Some(KnownAnswer { answer, fingerprint })
}

fn reference(rule: &WebhookRuleId) -> ObjectReference {
    ObjectReference {
        api_version: Some(PodTransitionRule::api_version(&()).into_owned()),
        kind: Some(PodTransitionRule::kind(&()).into_owned()),
        name: Some(rule.object.clone()),
        namespace: Some(rule.namespace.clone()),
        uid: Some(rule.uid.clone()),
        ..ObjectReference::default()
    }
}

fn failing_text(rule: &str, error: &str, passes: bool) -> String {
    let effect = match passes {
        true => "Pods pass without its answer (failurePolicy Ignore)",
        false => "Pods wait (failurePolicy Fail), and the webhook is called again, at least every 30 s",
    };
    let error = shortened(error, 500);
    format!(
        "the webhook of rule {rule} fails: {error}. {effect}. Check that it answers, and that caBundle matches its \
         certificate"
    )
}

/// Reads pods from the API server.
struct ApiPodReader {
    client: Client,
}

impl PodReader for ApiPodReader {
    fn json<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, String>> {
        Box::pin(async move {
            let pods: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
            match api_call(pods.get_opt(pod)).await {
                Ok(Some(found)) if found.metadata.uid.as_deref() == Some(uid) => serde_json::to_value(found)
                    .map(|json| Some(Arc::new(json)))
                    .map_err(|error| error.to_string()),
                Ok(_) => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use podward_core::rules::CheckStage;

    use super::*;

    #[test]
    fn a_request_that_is_made_again_is_the_same_for_the_webhook() {
        let at = |asked_at: String| {
            let request = CheckRequest { stage: CheckStage::PreCheck, operation: "a".to_owned(), asked_at };
            (waiting_pod(&CachedPod::default(), &request), request)
        };
        let now = UnixNanos(1_800_000_000_000_000_000);
        let (before, request) = at("1700000000000000999".to_owned());
        let (again, _) = at(request.asked_again_at(now));
        assert_eq!(before, again);
        let (later, _) = at("1700000000000001000".to_owned());
        assert_ne!(before, later, "a later run of the operation");
    }

    #[test]
    fn a_failing_webhook_is_reported_on_its_rule_object() {
        let named = |text: &str| text.to_owned();
        let rule = WebhookRuleId {
            namespace: named("shop"),
            object: named("web"),
            uid: named("u"),
            rule: named("outside"),
        };
        let about = reference(&rule);
        assert_eq!(about.api_version.as_deref(), Some("apps.kusionstack.io/v1alpha1"));
        assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("PodTransitionRule"), Some("web")));
        let text = failing_text("outside", &"x".repeat(5000), false);
        assert!(
            text.len() < 1000 && text.contains("failurePolicy Fail") && text.contains("caBundle"),
            "{text}"
        );
        assert!(failing_text("outside", "gone", true).contains("Pods pass without its answer"));
    }
}
