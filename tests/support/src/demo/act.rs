//! The operations of the demo on a Deployment.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::json;

use super::{
    eviction,
    workload::{DemoWorkload, NAME},
};
use crate::{
    operator::Operator,
    pods,
    rollout::{is_rolled_out, restart_patch},
    wait::within,
    watched::await_condition,
};

/// The number of pods after the scale-in.
const FEWER: usize = 2;

/// An operation on the Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// `kubectl rollout restart` with the Deployment's default strategy.
    RollingUpdate,
    /// An operator changes the image of the pods in place, one after the other.
    InPlaceUpdate,
    /// The pods are evicted one after the other, as `kubectl drain` does.
    Drain,
    /// The Deployment is scaled from four to two.
    ScaleIn,
}

impl Act {
    /// All acts, in the order of the demo.
    pub const ALL: [Self; 4] = [Self::RollingUpdate, Self::InPlaceUpdate, Self::Drain, Self::ScaleIn];

    /// Returns the name in tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RollingUpdate => "rolling-update",
            Self::InPlaceUpdate => "in-place-update",
            Self::Drain => "drain",
            Self::ScaleIn => "scale-in",
        }
    }

    /// Performs the operation and waits for its end. `image` is the new image of an update.
    ///
    /// # Errors
    /// Fails if the operation fails or does not end.
    pub async fn perform(self, workload: &DemoWorkload, image: &str) -> Result<()> {
        let what = || format!("the end of {self} in namespace {}", workload.namespace);
        within(workload.longest(), what, async {
            match self {
                Self::RollingUpdate => rolling_update(workload).await,
                Self::InPlaceUpdate => in_place_update(workload, image).await,
                Self::Drain => eviction::drain(workload).await,
                Self::ScaleIn => scale_in(workload).await,
            }
        })
        .await
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

async fn rolling_update(workload: &DemoWorkload) -> Result<()> {
    let before: BTreeSet<String> = workload.names().into_iter().collect();
    patch_deployment(workload, &restart_patch()).await?;
    let deployments = workload.deployments();
    await_condition(deployments, NAME, |deployment: Option<&Deployment>| {
        deployment.is_some_and(is_rolled_out)
    })
    .await
    .context("watch the Deployment")?;
    let pods = workload.until_in_service(workload.replicas()).await?;
    ensure!(pods.iter().all(|pod| !before.contains(&pod.name_any())), "the rolling update left an old pod");
    Ok(())
}

async fn in_place_update(workload: &DemoWorkload, image: &str) -> Result<()> {
    let operator = Operator::new(&workload.feed, "updater", "update");
    for pod in workload.names() {
        if workload.opted_in {
            operator.update(&pod, image).await?;
        } else {
            let before = workload.feed.get(&pod).with_context(|| format!("pod {pod} is gone"))?;
            operator.set_image(&pod, image).await?;
            operator.await_image(&before, image).await?;
        }
        workload.feed.until(&pod, "it is in service again", |pod| workload.serves(pod)).await?;
    }
    let updated = |pod: &Pod| pods::container(pod).is_some_and(|status| status.image == image);
    ensure!(workload.feed.all().iter().all(|pod| updated(pod)), "the in-place update left an old container");
    Ok(())
}

async fn scale_in(workload: &DemoWorkload) -> Result<()> {
    let before: BTreeSet<String> = workload.names().into_iter().collect();
    patch_deployment(workload, &json!({"spec": {"replicas": FEWER}})).await?;
    let pods = workload.until_in_service(FEWER).await?;
    ensure!(pods.iter().all(|pod| before.contains(&pod.name_any())), "the scale-in made a new pod");
    Ok(())
}

async fn patch_deployment(workload: &DemoWorkload, patch: &serde_json::Value) -> Result<()> {
    let patched = workload.deployments().patch(NAME, &PatchParams::default(), &Patch::Strategic(patch)).await;
    patched.map(drop).with_context(|| format!("patch the Deployment {}/{NAME}", workload.namespace))
}
