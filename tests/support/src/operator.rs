//! An operator that follows the label protocol and does not know Podward.

mod rolling;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use podward_core::keys::Stage;
use serde_json::{Value, json};

use crate::{feed::PodFeed, late_webhook::despite_late_webhook, pods};

/// The field manager of an operator's writes.
const FIELD_MANAGER: &str = "demo-operator";

/// The way in which an operator finishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishStyle {
    /// Removes only `operating/<id>`, as `Finish` of the reference implementation does.
    #[default]
    OperatingOnly,
    /// Also removes `operation-type/<id>`, in the same write, as the protocol's design asks.
    Both,
}

/// An operator. All its operations have the same id and type.
#[derive(Clone, Debug)]
pub struct Operator {
    feed: PodFeed,
    id: String,
    operation_type: String,
    finish_style: FinishStyle,
}

impl Operator {
    /// Returns an operator for the pods of `feed`.
    pub fn new(feed: &PodFeed, id: impl Into<String>, operation_type: impl Into<String>) -> Self {
        let finish_style = FinishStyle::default();
        Self { feed: feed.clone(), id: id.into(), operation_type: operation_type.into(), finish_style }
    }

    /// Returns the same operator with another way of finishing.
    #[must_use]
    pub fn finishing(mut self, style: FinishStyle) -> Self {
        self.finish_style = style;
        self
    }

    /// Returns the id of its operations.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the type of its operations.
    #[must_use]
    pub fn operation_type(&self) -> &str {
        &self.operation_type
    }

    /// Returns the key of this operator's label of `stage`.
    #[must_use]
    pub fn key(&self, stage: Stage) -> String {
        stage.key(&self.id)
    }

    /// Returns whether this operator's label of `stage` is on `pod`.
    #[must_use]
    pub fn has(&self, pod: &Pod, stage: Stage) -> bool {
        pods::has_label(pod, &self.key(stage))
    }

    /// Announces the operation: `operating/<id>` and `operation-type/<id>` in one write.
    ///
    /// # Errors
    /// Fails if the API server refuses.
    pub async fn begin(&self, pod: &str) -> Result<Pod> {
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        let labels = [
            (self.key(Stage::Operating), Some(now)),
            (self.key(Stage::OperationType), Some(self.operation_type.clone())),
        ];
        self.write_labels(pod, "begin", labels).await
    }

    /// Waits for the permission, `operate/<id>`.
    ///
    /// # Errors
    /// Fails if it doesn't come in time.
    pub async fn await_operate(&self, pod: &str) -> Result<Arc<Pod>> {
        self.await_stage(pod, Stage::Operate).await
    }

    /// Waits for this operator's label of `stage`.
    ///
    /// # Errors
    /// Fails if it doesn't come in time.
    pub async fn await_stage(&self, pod: &str, stage: Stage) -> Result<Arc<Pod>> {
        let key = self.key(stage);
        self.feed.until(pod, &format!("the label {key} is there"), |pod| pods::has_label(pod, &key)).await
    }

    /// Finishes the operation in this operator's style.
    ///
    /// # Errors
    /// Fails if the API server rejects the write.
    pub async fn finish(&self, pod: &str) -> Result<Pod> {
        let operating = (self.key(Stage::Operating), None);
        let labels = match self.finish_style {
            FinishStyle::OperatingOnly => vec![operating],
            FinishStyle::Both => vec![operating, (self.key(Stage::OperationType), None)],
        };
        self.write_labels(pod, "finish", labels).await
    }

    /// Cancels: `undo-operation-type/<id>` with the type.
    ///
    /// # Errors
    /// Fails if the API server refuses.
    pub async fn undo(&self, pod: &str) -> Result<Pod> {
        let undo = (self.key(Stage::UndoOperationType), Some(self.operation_type.clone()));
        self.write_labels(pod, "undo", [undo]).await
    }

    /// Changes the image of the pod's first container in place.
    ///
    /// # Errors
    /// Fails if the API server refuses, or there is no such pod.
    pub async fn set_image(&self, pod: &str, image: &str) -> Result<Pod> {
        let name =
            self.feed.get(pod).and_then(|pod| Some(pod.spec.as_ref()?.containers.first()?.name.clone()));
        let name = name.with_context(|| format!("set the image of pod {pod}: it isn't there"))?;
        let change = json!({"spec": {"containers": [{"name": name, "image": image}]}});
        let patch = Patch::Strategic(change);
        self.write(pod, &format!("set image {image}"), &patch).await
    }

    /// Waits until a container with `image` runs and is ready, and is a different container than that of `before`.
    ///
    /// # Errors
    /// Fails if that does not happen in time.
    pub async fn await_image(&self, before: &Pod, image: &str) -> Result<Arc<Pod>> {
        let name = kube::ResourceExt::name_any(before);
        let old_id = pods::container(before).map(|status| status.image_id.clone());
        let changed = move |pod: &Pod| {
            pods::container(pod).is_some_and(|status| {
                let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
                status.image == image
                    && Some(&status.image_id) != old_id.as_ref()
                    && is_running
                    && status.ready
            })
        };
        self.feed.until(&name, &format!("its container runs {image} and is ready"), changed).await
    }

    async fn write_labels(
        &self,
        pod: &str,
        what: &str,
        labels: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<Pod> {
        let labels: BTreeMap<_, _> = labels.into_iter().collect();
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.write(pod, what, &patch).await
    }

    async fn write(&self, pod: &str, what: &str, patch: &Patch<Value>) -> Result<Pod> {
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.feed.api();
        let written = despite_late_webhook(|| api.patch(pod, &parameters, patch)).await;
        let place = self.feed.namespace();
        written.with_context(|| {
            format!("{what} operation {} ({}) on pod {place}/{pod}", self.id, self.operation_type)
        })
    }
}
