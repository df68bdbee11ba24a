//! Volumes that are attached to another node.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use podward_e2e::{Fixture, Test};
use podward_support::{WAIT, within};
use serde_json::json;

use super::asked::{create, delete, server, until_first_line};
use crate::deletion::own_nodes::OwnNode;

/// Nodes with this annotation leave their volumes to the attach-detach controller. A kubelet sets it.
const CONTROLLED: &str = "volumes.kubernetes.io/controller-managed-attach-detach=true";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::simulated("why_a_volume_is_attached_elsewhere", elsewhere)]
}

/// The attach-detach controller of the cluster refuses to attach the volume to a second node, and says so. The test is the
/// attacher of the CSI driver, which reports that the volume is attached.
async fn elsewhere(fixture: Arc<Fixture>) -> Result<()> {
    fixture.ends_in_the_middle();
    let (old, new) =
        (OwnNode::make(&fixture, "old", 2, true).await?, OwnNode::make(&fixture, "new", 2, true).await?);
    for node in [&old, &new] {
        fixture.kubectl(&["annotate", "node", &node.name, CONTROLLED]).await?.succeeded()?;
    }
    let volume = format!("{}-data", fixture.namespace());
    let size = json!({"storage": "1Mi"});
    let claim = json!({"namespace": fixture.namespace(), "name": "data"});
    create(
        &fixture,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "", "claimRef": claim,
                "csi": {"driver": "disk.example.com", "volumeHandle": volume},
            },
        }),
    )
    .await?;
    create(
        &fixture,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
                "resources": {"requests": size},
            },
        }),
    )
    .await?;
    let user = async |name: &str, node: &OwnNode<'_>, annotations: serde_json::Value| {
        let mut spec = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
        node.place(&mut spec);
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.name});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": server(&fixture, spec, json!({})),
        });
        create(&fixture, pod).await
    };
    user("old", &old, json!({})).await?;
    attach(&fixture, &volume, &old.name).await?;
    // A kubelet would wait for the volume as well.
    user("new", &new, json!({"simulate.podward.io/start-seconds": "3600"})).await?;
    let words = format!("volume {volume} is still attached for pod old on another node");
    let said = until_first_line(&fixture, "new", &words).await?;
    let first = said.lines().next().unwrap_or_default();
    ensure!(first.ends_with("; next: kubectl get volumeattachments; the old pod has to end first"), "{said}");
    fixture.kubectl(&["delete", "pod", "old", "new", "--grace-period=0", "--force"]).await?.succeeded()?;
    delete(&fixture, "pv", &volume).await?;
    for node in [old, new] {
        node.remove().await?;
    }
    Ok(())
}

/// Waits for the VolumeAttachment of the volume, and reports it as attached.
async fn attach(fixture: &Fixture, volume: &str, node: &str) -> Result<()> {
    let api: Api<VolumeAttachment> = Api::all(fixture.client());
    let mut seen =
        std::pin::pin!(watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects());
    let attachment = within(WAIT, || format!("a VolumeAttachment of {volume}"), async {
        loop {
            let found =
                seen.try_next().await.context("watch VolumeAttachments")?.context("the watch has ended")?;
            if found.spec.source.persistent_volume_name.as_deref() == Some(volume) {
                return Ok(found);
            }
        }
    })
    .await?;
    ensure!(attachment.spec.node_name == node, "it is for node {}", attachment.spec.node_name);
    let attached = Patch::Merge(json!({"status": {"attached": true}}));
    let reported = api.patch_status(&attachment.name_any(), &PatchParams::default(), &attached).await;
    reported.map(drop).context("report that the volume is attached")
}
