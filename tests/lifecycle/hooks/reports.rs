//! Reports about hooks: on pods, in events and in metrics.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use podward_core::keys;
use podward_e2e::Fixture;
use podward_support::{Operator, WAIT, within};
use serde_json::Value;

use crate::controllers::leader;

/// The interval of checks that cannot use a watch.
const POLL: Duration = Duration::from_millis(100);

/// Returns what the pod waits for.
pub(crate) fn message(pod: &Pod) -> &str {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ours = conditions.filter(|condition| condition.type_ == keys::LIFECYCLE_CONDITION);
    ours.find_map(|condition| condition.message.as_deref()).unwrap_or_default()
}

/// Returns the recorded evidence of the hook `name`.
pub(crate) fn evidence(pod: &Pod, name: &str) -> Value {
    let text = pod.annotations().get(keys::EVIDENCE).cloned().unwrap_or_default();
    let all: Value = serde_json::from_str(&text).unwrap_or_default();
    all[name].clone()
}

/// Waits for an event about `pod` with this reason and this text.
pub(crate) async fn until_event(fixture: &Fixture, pod: &str, reason: &str, words: &[&str]) -> Result<()> {
    let events: Api<Event> = Api::namespaced(fixture.client(), fixture.namespace());
    let tells = |event: &Event| {
        event.involved_object.name.as_deref() == Some(pod)
            && event.reason.as_deref() == Some(reason)
            && event.message.as_ref().is_some_and(|text| words.iter().all(|word| text.contains(word)))
    };
    let told = async {
        loop {
            let events = events.list(&ListParams::default()).await.context("list events")?;
            if events.items.iter().any(tells) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(WAIT, || format!("an event {reason} of pod {pod} with {words:?}"), told).await
}

/// Waits until the operation is over, the pod `web` is available, and nothing of a rejected result is left on it.
pub(crate) async fn until_over(fixture: &Fixture, operator: &Operator) -> Result<()> {
    operator.await_end("web").await?;
    let is_clean = |pod: &Pod| !pod.annotations().contains_key(keys::RESULT_REFUSED);
    fixture.feed().until("web", "the record is gone", is_clean).await.map(drop)
}

/// Waits until the leader's metrics have a line that contains all of these and a value other than 0.
pub(crate) async fn until_counted(fixture: &Fixture, metric: &str, labels: &[&str]) -> Result<()> {
    let counts = |line: &str| {
        line.starts_with(metric)
            && labels.iter().all(|label| line.contains(label))
            && line.rsplit(' ').next().is_some_and(|figure| figure != "0")
    };
    let counted = async {
        loop {
            if leader(fixture).await?.metrics().await?.lines().any(counts) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(WAIT, || format!("the metric {metric} with {labels:?}"), counted).await
}
