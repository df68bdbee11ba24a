//! An operator that answers the hooks of CloneSets with labels, and a record of the states of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use podward_core::cloneset::keys::STATE_LABEL;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::feed::{PodFeed, PodFeedEvent, WatchTask, observe};

/// The marker of `preNormal`, in the words of the articles about the protocol.
pub const NEWLY_CREATE: &str = "newly-create";
/// The marker of `inPlaceUpdate`.
pub const BLOCKS_UPDATE: &str = "unready-blocker-inplace";
/// The marker of `preDelete`.
pub const BLOCKS_DELETE: &str = "unready-blocker-delete";

/// The states in which an operator is asked.
pub const ASKING: &[&str] = &["PreparingNormal", "PreparingUpdate", "Updated", "PreparingDelete"];

/// Releases and confirms the pods of a namespace at once, until it is dropped.
#[derive(Debug)]
pub struct MarkerOperator(JoinHandle<()>);

impl Drop for MarkerOperator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl MarkerOperator {
    /// Starts the operator. It answers in the states of `answers`.
    #[must_use]
    pub fn start(feed: &PodFeed, answers: &'static [&'static str]) -> Self {
        let mut feed = feed.clone();
        Self(tokio::spawn(async move {
            loop {
                for pod in feed.all() {
                    let state = state(&pod).unwrap_or_default();
                    if answers.contains(&&*state)
                        && let Err(error) = answer(&feed.api(), &pod).await
                    {
                        eprintln!("the operator of {}: {error:#}", pod.name_any());
                    }
                }
                if feed.changed().await.is_err() {
                    return;
                }
            }
        }))
    }
}

/// Returns the labels that answer the state of the pod. `None`: it asks for nothing.
#[must_use]
pub fn answer_of(pod: &Pod) -> Option<Value> {
    let has = |key: &str| pod.labels().contains_key(key);
    match &*state(pod)? {
        "PreparingNormal" if !has(NEWLY_CREATE) => Some(json!({NEWLY_CREATE: "true"})),
        "PreparingUpdate" if has(BLOCKS_UPDATE) => Some(json!({BLOCKS_UPDATE: null})),
        "Updated" if !has(BLOCKS_UPDATE) => Some(json!({BLOCKS_UPDATE: "true"})),
        "PreparingDelete" if has(BLOCKS_DELETE) => Some(json!({BLOCKS_DELETE: null})),
        _ => None,
    }
}

/// Does what the state of the pod asks for.
///
/// # Errors
/// Fails if the API server refuses the change.
pub async fn answer(api: &Api<Pod>, pod: &Pod) -> Result<()> {
    let Some(labels) = answer_of(pod) else { return Ok(()) };
    let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid(), "labels": labels}}));
    match api.patch(&pod.name_any(), &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        other => other.map(drop).context("answer a hook"),
    }
}

/// Returns the state of the pod.
#[must_use]
pub fn state(pod: &Pod) -> Option<String> {
    pod.labels().get(STATE_LABEL).cloned()
}

/// The states that each pod had, in order.
#[derive(Clone, Debug, Default)]
pub struct States(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl States {
    /// Records the states of the pods of a namespace, as long as the second value lives.
    ///
    /// # Errors
    /// Fails if the pods cannot be watched.
    pub async fn record(client: Client, namespace: &str) -> Result<(Self, WatchTask)> {
        let states = Self::default();
        let record = states.clone();
        let task = observe(client, namespace, "", move |event| {
            if let PodFeedEvent::Version(pod) = event
                && let Some(state) = state(&pod)
            {
                let mut record = record.0.lock();
                let states = record.entry(pod.name_any()).or_default();
                if states.last() != Some(&state) {
                    states.push(state);
                }
            }
        });
        Ok((states, task.await?))
    }

    /// Returns the states of the pods so far, by name.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Vec<String>> {
        self.0.lock().clone()
    }
}
