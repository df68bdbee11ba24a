//! Volumes for the pods of a CloneSet on a real node.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use podward_core::cloneset::keys::INSTANCE_ID;
use podward_e2e::Fixture;
use serde_json::{Value, json};

use super::watched_objects::until_objects;

/// Enough for the pods that a test creates. A volume is not used again.
const COUNT: usize = 8;

/// Returns the spec of a pod with the volume of its claim.
pub(crate) fn with_volume(mut spec: Value) -> Value {
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec
}

/// Volumes in a folder of the machine, as nothing in the cluster makes them.
pub(crate) struct Volumes {
    api: Api<PersistentVolume>,
    class: String,
    _folder: tempfile::TempDir,
}

impl Volumes {
    /// Creates them, in a class of their own.
    pub(crate) async fn create(fixture: &Fixture) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for volumes")?;
        let (api, class) = (Api::all(fixture.client()), fixture.namespace().to_owned());
        for number in 0..COUNT {
            let volume = json!({
                "metadata": {"name": format!("{class}-{number}")},
                "spec": {
                    "capacity": {"storage": "1Mi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": class,
                    "hostPath": {"path": folder.path().join(number.to_string()), "type": "DirectoryOrCreate"},
                },
            });
            let volume = serde_json::from_value(volume).context("describe a volume")?;
            api.create(&PostParams::default(), &volume).await.context("create a volume")?;
        }
        Ok(Self { api, class, _folder: folder })
    }

    /// Returns the template of a claim for one of them.
    pub(crate) fn claim(&self) -> Value {
        json!({
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
                "storageClassName": self.class,
            },
        })
    }

    /// Waits until exactly the pods that there are have claims, and all are bound.
    pub(crate) async fn until_of_pods(&self, fixture: &Fixture) -> Result<()> {
        let id = |pod: &Arc<Pod>| pod.labels().get(INSTANCE_ID).cloned();
        let wanted: BTreeSet<String> = fixture.feed().all().iter().filter_map(id).collect();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client(), fixture.namespace());
        let fits = |claims: &[Arc<PersistentVolumeClaim>]| {
            let is_bound = |claim: &Arc<PersistentVolumeClaim>| {
                claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
            };
            let ids = claims.iter().filter(|claim| is_bound(claim));
            let ids: BTreeSet<String> = ids.filter_map(|it| it.labels().get(INSTANCE_ID).cloned()).collect();
            ids == wanted && claims.len() == wanted.len()
        };
        until_objects(api, &format!("bound claims of {wanted:?}"), fits).await.map(drop)
    }

    /// Removes them.
    pub(crate) async fn remove(self) -> Result<()> {
        for number in 0..COUNT {
            let name = format!("{}-{number}", self.class);
            self.api.delete(&name, &DeleteParams::default()).await.context("delete a volume")?;
        }
        Ok(())
    }
}
