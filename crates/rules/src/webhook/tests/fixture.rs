//! Drivers of webhooks for tests.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use podward_api::pod_transition_rule::{TransitionRuleWebhook, WebhookStatus};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::drivers::WebhookConsultation;
use super::super::{
    PodReader, WaitingPod, WebhookDrivers, WebhookMetrics, WebhookObservers, WebhookRuleId, WebhookVerdict,
};
use super::webhook_server::WebhookServer;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};
use podward_traces::OperationTraces;

/// A test that waits longer fails.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster with every pod but `gone`. The annotations of `large-*` have 300 KB, those of `huge` two megabytes.
struct Cluster;

impl PodReader for Cluster {
    fn json<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, String>> {
        let bytes = match pod.split('-').next() {
            Some("large") => 300_000,
            Some("huge") => 2_000_000,
            _ => 0,
        };
        let annotations = json!({"data": "x".repeat(bytes)});
        let metadata = json!({"name": pod, "namespace": namespace, "uid": uid, "annotations": annotations});
        let found =
            (pod != "gone").then(|| Arc::new(json!({"metadata": metadata, "status": {"podIP": "10.0.0.1"}})));
        async { Ok(found) }.boxed()
    }
}

pub(super) struct WebhookFixture {
    pub(super) webhooks: WebhookDrivers,
    pub(super) changed: Arc<Notify>,
    /// The reported failures: the error, and true if pods pass.
    pub(super) failing: Arc<Mutex<Vec<(String, bool)>>>,
    pub(super) metrics: WebhookMetrics,
    pub(super) stop: CancellationToken,
}

impl WebhookFixture {
    pub(super) fn new() -> Self {
        Self::with_dialer(local_dialer())
    }

    pub(super) fn with_dialer(dialer: GuardedDialer) -> Self {
        let (changed, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let notify = {
            let changed = changed.clone();
            Arc::new(move |_: &WebhookRuleId| changed.notify_one())
        };
        let (failing, metrics) = (Arc::<Mutex<Vec<_>>>::default(), WebhookMetrics::default());
        let reports = failing.clone();
        let observers = WebhookObservers {
            changed: notify,
            failing: Arc::new(move |_, error, passes| reports.lock().push((error.to_owned(), passes))),
            metrics: metrics.clone(),
            traces: OperationTraces::default(),
        };
        let webhooks = WebhookDrivers::new(Arc::new(Cluster), observers, dialer, stop.clone());
        Self { webhooks, changed, failing, metrics, stop }
    }

    pub(super) fn consult(
        &self,
        name: &str,
        rule: &TransitionRuleWebhook,
        subjects: &[WaitingPod],
        stored: Option<&WebhookStatus>,
    ) -> WebhookConsultation {
        self.webhooks.consult(&id(name), rule, Some("PreCheck"), subjects, stored)
    }

    /// Consults after each change until `is_it` holds, and returns the last consultation.
    pub(super) async fn until(
        &self,
        rule: &TransitionRuleWebhook,
        subjects: &[WaitingPod],
        is_it: impl Fn(&WebhookConsultation) -> bool,
    ) -> WebhookConsultation {
        tokio::time::timeout(TEST_TIMEOUT, async {
            loop {
                let consulted = self.consult("outside", rule, subjects, None);
                if is_it(&consulted) {
                    return consulted;
                }
                self.changed.notified().await;
            }
        })
        .await
        .unwrap()
    }

    pub(super) async fn passed(
        &self,
        rule: &TransitionRuleWebhook,
        subjects: &[WaitingPod],
    ) -> WebhookConsultation {
        self.until(rule, subjects, |found| {
            found.verdicts.iter().all(|verdict| *verdict == WebhookVerdict::Passed)
        })
        .await
    }
}

/// Returns a dialer that may connect to loopback, where the servers of tests are.
pub(super) fn local_dialer() -> GuardedDialer {
    let allowed = ["127.0.0.0/8".parse().unwrap()];
    GuardedDialer::new(AddressPolicy::new(&allowed, ApiServerAddresses::fixed([])))
}

pub(super) fn id(rule: &str) -> WebhookRuleId {
    WebhookRuleId {
        namespace: "shop".to_owned(),
        object: "rules".to_owned(),
        uid: "u".to_owned(),
        rule: rule.to_owned(),
    }
}

pub(super) fn rule(server: &WebhookServer, change: Value) -> TransitionRuleWebhook {
    let scheme = if change["tls"] == false { "http" } else { "https" };
    let (url, bundle) = (format!("{scheme}://{}", server.address), BASE64_STANDARD.encode(&server.authority));
    let mut rule = json!({"failurePolicy": "Fail", "clientConfig": {
        "url": format!("{url}/first"), "caBundle": bundle,
        "poll": {"url": format!("{url}/poll?kind=a"), "caBundle": bundle, "intervalSeconds": 1},
    }});
    json_patch::merge(&mut rule, &change);
    serde_json::from_value(rule).unwrap()
}
