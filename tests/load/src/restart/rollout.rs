//! A Deployment, and its restart.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use podward_support::{PodFeedEvent, WatchTask, await_condition, is_rolled_out, observe, restart_patch};
use tokio::sync::watch;

const DEADLINE: Duration = Duration::from_secs(1200);

/// A Deployment whose pods are watched.
pub(super) struct Rollout {
    deployments: Api<Deployment>,
    name: String,
    /// The UIDs of the pods that exist, also of those that are terminating.
    pods: watch::Receiver<HashSet<String>>,
    _watching: WatchTask,
}

impl Rollout {
    /// Watches the pods of the Deployment `name`, whose label `app` has its name.
    pub(super) async fn start(client: &Client, namespace: &str, name: &str) -> Result<Rollout> {
        let (sender, pods) = watch::channel(HashSet::new());
        let watching = observe(client.clone(), namespace, &format!("app={name}"), move |seen| match seen {
            PodFeedEvent::Version(pod) => sender.send_modify(|pods| pods.extend(pod.uid())),
            PodFeedEvent::Gone(pod) => {
                sender.send_modify(|pods| pods.retain(|uid| Some(uid) != pod.metadata.uid.as_ref()));
            }
            PodFeedEvent::Left(left) => sender.send_modify(|pods| pods.retain(|uid| left.contains(uid))),
            PodFeedEvent::Gap => {}
        })
        .await?;
        let deployments = Api::namespaced(client.clone(), namespace);
        Ok(Rollout { deployments, name: name.to_owned(), pods, _watching: watching })
    }

    /// Restarts the Deployment as `kubectl rollout restart` does. Returns the time until `kubectl rollout status` would
    /// report its success and all old pods are gone.
    pub(super) async fn restart(&self) -> Result<Duration> {
        let old = self.pods.borrow().clone();
        let begun = Instant::now();
        let patch = Patch::Strategic(restart_patch());
        let patched = self.deployments.patch(&self.name, &PatchParams::default(), &patch).await;
        let patched = patched.with_context(|| format!("restart deployment {}", self.name))?;
        let generation = patched.metadata.generation;
        let complete =
            await_condition(self.deployments.clone(), &self.name, move |found: Option<&Deployment>| {
                found.is_some_and(|found| found.metadata.generation >= generation && is_rolled_out(found))
            });
        let mut pods = self.pods.clone();
        let gone = async {
            let gone = pods.wait_for(|pods| pods.is_disjoint(&old)).await;
            gone.map(drop).context("the watch on pods has ended")
        };
        let both = async { tokio::try_join!(complete, gone) };
        let ended = tokio::time::timeout(DEADLINE, both).await;
        ended.with_context(|| {
            format!("waited {} s in vain for the rollout of deployment {}", DEADLINE.as_secs(), self.name)
        })??;
        Ok(begun.elapsed())
    }
}
