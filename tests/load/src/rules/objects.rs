//! The rule objects of a namespace, and a watch on their statuses.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number of concurrent requests.
const MAX_CONCURRENT: usize = 20;
const DEADLINE: Duration = Duration::from_secs(300);

/// The observations so far.
#[derive(Default)]
struct ObservedRules {
    /// The number of selected pods of each rule object whose latest version the controller has processed.
    known: HashMap<String, u64>,
    /// The largest size of a status as JSON, in bytes.
    largest: usize,
}

/// A watch on rule objects. It ends when this is dropped. The objects stay.
pub(super) struct RuleObjects {
    api: Api<DynamicObject>,
    seen: watch::Receiver<ObservedRules>,
    watching: JoinHandle<()>,
}

impl RuleObjects {
    pub(super) async fn start(client: &Client, namespace: &str) -> Result<RuleObjects> {
        let kind = GroupVersionKind::gvk("apps.kusionstack.io", "v1alpha1", "PodTransitionRule");
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let (sender, seen) = watch::channel(ObservedRules::default());
        let events = watcher(api.clone(), watcher::Config::default()).default_backoff();
        let watching = tokio::spawn(async move {
            let mut objects = std::pin::pin!(events.applied_objects());
            while let Some(object) = objects.next().await {
                match object {
                    Ok(object) => sender.send_modify(|seen| seen.take(&object)),
                    Err(error) => eprintln!("the watch of rules was interrupted: {error}"),
                }
            }
        });
        Ok(RuleObjects { api, seen, watching })
    }

    /// Creates rules with these names, each for the pods of an `app`, of which at most `most` may be unavailable.
    pub(super) async fn make(&self, rules: &[(String, String)], most: &str) -> Result<()> {
        futures::stream::iter(rules)
            .map(|(name, app)| async move {
                let rule = serde_json::from_value(json!({
                    "apiVersion": "apps.kusionstack.io/v1alpha1",
                    "kind": "PodTransitionRule",
                    "metadata": {"name": name},
                    "spec": {
                        "selector": {"matchLabels": {"app": app}},
                        "rules": [{"name": "budget", "availablePolicy": {"maxUnavailableValue": most}}],
                    },
                }))?;
                let made = self.api.create(&PostParams::default(), &rule).await;
                made.map(drop).with_context(|| format!("make rule {name}"))
            })
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect()
            .await
    }

    /// Waits until the controller has processed `rules` rule objects, each with `pods` pods.
    pub(super) async fn until_known(&self, rules: usize, pods: usize) -> Result<()> {
        let pods = u64::try_from(pods)?;
        let mut seen = self.seen.clone();
        let known = |seen: &ObservedRules| seen.known.values().filter(|targets| **targets == pods).count();
        match tokio::time::timeout(DEADLINE, seen.wait_for(|seen| known(seen) >= rules)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(anyhow!("the watch of rules has ended")),
            Err(_) => Err(anyhow!(
                "waited {} s in vain until the controller knew {rules} rules with {pods} pods each; it knows {} such",
                DEADLINE.as_secs(),
                known(&self.seen.borrow())
            )),
        }
    }

    /// Returns the largest size of a status as JSON, in bytes.
    pub(super) fn largest_status(&self) -> usize {
        self.seen.borrow().largest
    }
}

impl Drop for RuleObjects {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl ObservedRules {
    fn take(&mut self, object: &DynamicObject) {
        let status = &object.data["status"];
        if status.is_null() {
            return;
        }
        self.largest = self.largest.max(status.to_string().len());
        let is_of_this = status["observedGeneration"].as_i64() == object.metadata.generation;
        match status["targetCount"].as_u64().filter(|_| is_of_this) {
            Some(targets) => self.known.insert(object.name_any(), targets),
            None => self.known.remove(&object.name_any()),
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn seen(seen: &mut ObservedRules, status: &Value) {
        let object = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": {"name": "a", "generation": 2}, "spec": {}, "status": status,
        });
        seen.take(&serde_json::from_value(object).unwrap());
    }

    #[test]
    fn a_rule_is_known_when_its_latest_version_is() {
        let mut found = ObservedRules::default();
        seen(&mut found, &Value::Null);
        assert!(found.known.is_empty() && found.largest == 0);
        seen(&mut found, &json!({"observedGeneration": 2, "targetCount": 7}));
        assert_eq!(found.known["a"], 7);
        assert_eq!(found.largest, r#"{"observedGeneration":2,"targetCount":7}"#.len());
        seen(&mut found, &json!({"observedGeneration": 1, "targetCount": 7}));
        assert!(found.known.is_empty(), "the status belongs to the version before");
        assert_eq!(found.largest, r#"{"observedGeneration":2,"targetCount":7}"#.len());
    }
}
