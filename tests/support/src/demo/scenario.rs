//! Three operators that know nothing of each other.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use podward_core::keys::Stage;
use serde_json::json;

use crate::{feed::PodFeed, operator::Operator};

/// An annotation that the second operator changes: its work.
const SETTING: &str = "demo.podward.io/log-level";

/// Updates all `pods` to `image`; meanwhile another operation overlaps on the first of them, and one on the last is cancelled.
pub(super) async fn play(feed: &PodFeed, pods: &[String], image: &str) -> Result<()> {
    let (first, last) = (pods.first().context("no pods")?, pods.last().context("no pods")?);
    let updater = Operator::new(feed, "updater", "update");
    let (updated, adjusted, cancelled) =
        tokio::join!(updater.update_all(pods, image, 2), adjust(feed, first, &updater), cancel(feed, last),);
    updated.and(adjusted).and(cancelled)
}

/// Begins while the other operator is at work on the pod, and finishes after it.
async fn adjust(feed: &PodFeed, pod: &str, other: &Operator) -> Result<()> {
    let operator = Operator::new(feed, "adjuster", "configure");
    other.await_stage(pod, Stage::Operating).await?;
    operator.begin(pod).await?;
    operator.await_operate(pod).await?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SETTING: "debug"}}}));
    let written = feed.api().patch(pod, &PatchParams::default(), &patch).await;
    written.with_context(|| format!("set the annotation {SETTING} on pod {pod}"))?;
    feed.until(pod, "the other operator has finished", |pod| !other.has(pod, Stage::Operating)).await?;
    operator.finish(pod).await?;
    operator.await_end(pod).await
}

/// Begins, gets the permission, and thinks better of it.
async fn cancel(feed: &PodFeed, pod: &str) -> Result<()> {
    let operator = Operator::new(feed, "scaler", "scale-in");
    operator.begin(pod).await?;
    operator.await_operate(pod).await?;
    operator.undo(pod).await?;
    operator.await_end(pod).await
}
