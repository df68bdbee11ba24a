//! A CloneSet of a test.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use podward_api::CloneSet;
use podward_api::clone_set::CloneSetStatus;
use podward_core::cloneset::keys::{HOOK_OPTIONS, STATE_LABEL};
use podward_core::keys::CONTROL_LABEL;
use podward_e2e::Fixture;
use podward_support::{WAIT, await_condition, pods, within};
use serde_json::{Value, json};

use podward_support::markers::{BLOCKS_DELETE, BLOCKS_UPDATE, NEWLY_CREATE};

use crate::merge::merge;

/// The CloneSet `web` of the namespace of a test.
pub(crate) struct MadeSet {
    fixture: Arc<Fixture>,
    api: Api<CloneSet>,
}

/// Returns the hooks of the articles about the protocol.
pub(crate) fn hooks() -> Value {
    json!({
        "preNormal": {"labelsHandler": {NEWLY_CREATE: "true"}},
        "inPlaceUpdate": {"labelsHandler": {BLOCKS_UPDATE: "true"}},
        "preDelete": {"labelsHandler": {BLOCKS_DELETE: "true"}},
    })
}

impl MadeSet {
    /// Creates the set. `labels` are those of its pods beside `app`, and `change` is merged into its spec.
    pub(crate) async fn create(fixture: &Arc<Fixture>, labels: Value, change: Value) -> Result<Self> {
        let mut set = json!({
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "CloneSet",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web", BLOCKS_UPDATE: "true", BLOCKS_DELETE: "true"}},
                    "spec": pods::server_spec(&fixture.images().v1),
                },
                "updateStrategy": {"type": "InPlaceIfPossible", "maxUnavailable": 1},
            },
        });
        // What the protocol of operations requires at the end does not concern other pods.
        if labels.get(CONTROL_LABEL).is_none() {
            fixture.ends_in_the_middle();
        }
        merge(&mut set["spec"]["template"]["metadata"]["labels"], labels);
        merge(&mut set["spec"], change);
        let set: CloneSet = serde_json::from_value(set).context("describe a CloneSet")?;
        let api: Api<CloneSet> = Api::namespaced(fixture.client(), fixture.namespace());
        api.create(&PostParams::default(), &set).await.context("create a CloneSet")?;
        Ok(Self { fixture: Arc::clone(fixture), api })
    }

    /// Merges a patch into the spec.
    pub(crate) async fn patch(&self, spec: Value) -> Result<CloneSet> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let patched = self.api.patch("web", &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("patch the CloneSet with {patch:?}"))
    }

    /// Replaces the options of the hooks.
    pub(crate) async fn options(&self, options: &Value) -> Result<CloneSet> {
        let annotations = json!({HOOK_OPTIONS: options.to_string()});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let patched = self.api.patch("web", &PatchParams::default(), &patch).await;
        patched.context("set the options of the hooks of the CloneSet")
    }

    /// Changes the image of the template.
    pub(crate) async fn update(&self, image: &str) -> Result<CloneSet> {
        let patch = Patch::Json::<()>(serde_json::from_value(json!([
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image},
        ]))?);
        self.api
            .patch("web", &PatchParams::default(), &patch)
            .await
            .context("change the image of the CloneSet")
    }

    /// Returns the set as it is stored.
    pub(crate) async fn get(&self) -> Result<CloneSet> {
        self.api.get("web").await.context("read the CloneSet")
    }

    /// Waits until the status describes the latest spec and fits.
    pub(crate) async fn until(
        &self,
        what: &str,
        test: impl Fn(&CloneSetStatus) -> bool,
    ) -> Result<CloneSetStatus> {
        let set = self.until_set(what, |set| {
            let status = set.status.as_ref();
            status.is_some_and(|it| it.observed_generation == set.metadata.generation && test(it))
        });
        set.await?.status.context("the CloneSet has no status")
    }

    /// Waits until the set fits.
    pub(crate) async fn until_set(&self, what: &str, test: impl Fn(&CloneSet) -> bool) -> Result<CloneSet> {
        let watched = async {
            let fits = |set: Option<&CloneSet>| set.is_some_and(&test);
            let set = await_condition(self.api.clone(), "web", fits).await.context("watch the CloneSet")?;
            set.context("the CloneSet is gone")
        };
        within(WAIT, || format!("the CloneSet until {what}"), watched).await
    }

    /// Waits until all pods have the latest revision and are available.
    pub(crate) async fn until_done(&self, replicas: i32) -> Result<CloneSetStatus> {
        let is_done = |status: &CloneSetStatus| {
            (status.replicas, status.updated_available_replicas, status.available_replicas)
                == (replicas, replicas, replicas)
        };
        self.until("all pods have the latest revision and are available", is_done).await
    }

    /// Waits until there are so many pods in these states, and no others.
    pub(crate) async fn until_states(&self, states: &[&str]) -> Result<Vec<Arc<Pod>>> {
        let mut wanted: Vec<&str> = states.to_vec();
        wanted.sort_unstable();
        let test = |pods: &[&Pod]| {
            let mut found: Vec<&str> = pods
                .iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .filter_map(|pod| pod.labels().get(STATE_LABEL).map(String::as_str))
                .collect();
            found.sort_unstable();
            found == wanted
        };
        self.fixture.feed().until_pods(&format!("their states are {wanted:?}"), test).await
    }
}
