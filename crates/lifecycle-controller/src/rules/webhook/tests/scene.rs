//! What tests ask webhooks with.

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

use super::super::{Consulted, Ears, Pods, RuleId, Subject, Verdict, WebhookMetrics, Webhooks};
use super::server::Server;
use crate::traces::Traces;

/// No test waits for longer: it has failed then.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Every pod that isn't called `gone`, with an address.
struct Cluster;

impl Pods for Cluster {
    fn json<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, String>> {
        let metadata = json!({"name": pod, "namespace": namespace, "uid": uid});
        let found =
            (pod != "gone").then(|| Arc::new(json!({"metadata": metadata, "status": {"podIP": "10.0.0.1"}})));
        async { Ok(found) }.boxed()
    }
}

pub(super) struct Scene {
    pub(super) webhooks: Webhooks,
    pub(super) woken: Arc<Notify>,
    /// What was told of failures.
    pub(super) failing: Arc<Mutex<Vec<(String, bool)>>>,
    pub(super) metrics: WebhookMetrics,
    pub(super) stop: CancellationToken,
}

impl Scene {
    pub(super) fn new() -> Self {
        let (woken, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let wake = {
            let woken = woken.clone();
            Arc::new(move |_: &RuleId| woken.notify_one())
        };
        let (failing, metrics) = (Arc::<Mutex<Vec<_>>>::default(), WebhookMetrics::default());
        let told = failing.clone();
        let ears = Ears {
            woken: wake,
            failing: Arc::new(move |_, why, passes| told.lock().push((why.to_owned(), passes))),
            metrics: metrics.clone(),
            traces: Traces::default(),
        };
        let webhooks = Webhooks::new(Arc::new(Cluster), ears, stop.clone());
        Self { webhooks, woken, failing, metrics, stop }
    }

    pub(super) fn consult(
        &self,
        name: &str,
        rule: &TransitionRuleWebhook,
        subjects: &[Subject],
        stored: Option<&WebhookStatus>,
    ) -> Consulted {
        self.webhooks.consult(&id(name), rule, Some("PreCheck"), subjects, stored)
    }

    /// Consults as often as it is told to until `is_it`, with what was put on record.
    pub(super) async fn until(
        &self,
        rule: &TransitionRuleWebhook,
        subjects: &[Subject],
        is_it: impl Fn(&Consulted) -> bool,
    ) -> Consulted {
        tokio::time::timeout(PATIENCE, async {
            loop {
                let consulted = self.consult("outside", rule, subjects, None);
                if is_it(&consulted) {
                    return consulted;
                }
                self.woken.notified().await;
            }
        })
        .await
        .unwrap()
    }

    pub(super) async fn passed(&self, rule: &TransitionRuleWebhook, subjects: &[Subject]) -> Consulted {
        self.until(rule, subjects, |found| found.verdicts.iter().all(|verdict| *verdict == Verdict::Passed))
            .await
    }
}

pub(super) fn id(rule: &str) -> RuleId {
    RuleId {
        namespace: "shop".to_owned(),
        object: "rules".to_owned(),
        uid: "u".to_owned(),
        rule: rule.to_owned(),
    }
}

pub(super) fn rule(server: &Server, change: Value) -> TransitionRuleWebhook {
    let scheme = if change["tls"] == false { "http" } else { "https" };
    let (url, bundle) = (format!("{scheme}://{}", server.address), BASE64_STANDARD.encode(&server.authority));
    let mut rule = json!({"failurePolicy": "Fail", "clientConfig": {
        "url": format!("{url}/first"), "caBundle": bundle,
        "poll": {"url": format!("{url}/poll?kind=a"), "caBundle": bundle, "intervalSeconds": 1},
    }});
    json_patch::merge(&mut rule, &change);
    serde_json::from_value(rule).unwrap()
}
