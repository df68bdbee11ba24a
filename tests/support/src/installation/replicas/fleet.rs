//! The pods of one service, and the number of replicas of its Deployment.

use std::net::IpAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde_json::json;

use super::super::{Installation, NAMESPACE, container_of, restarts};
use crate::{
    ServiceKind,
    pods::is_ready,
    wait::{WAIT, within},
    watched::await_condition,
};

/// The annotation that tells a ReplicaSet which pods to delete first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

#[derive(Debug)]
pub(super) struct ReplicaFleet {
    pub(super) installation: Installation,
    pub(super) kind: ServiceKind,
    /// The pods by number. A stopped pod has `None`.
    places: Mutex<Vec<Option<KnownPod>>>,
    /// Held while the number of replicas changes.
    pub(super) changing: tokio::sync::Mutex<()>,
}

/// A pod, with its state when it started.
#[derive(Clone, Debug)]
pub(super) struct KnownPod {
    pub(super) name: String,
    uid: String,
    pub(super) address: IpAddr,
    restarts: i32,
}

impl KnownPod {
    fn of(pod: &Pod) -> Result<Self> {
        let name = pod.name_any();
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("pod {name} has no address"))?;
        let uid = pod.uid().with_context(|| format!("pod {name} has no UID"))?;
        Ok(Self { name, uid, address, restarts: restarts(pod) })
    }

    /// Returns whether `holder` is the identity of one of its processes in a Lease.
    pub(super) fn is_known_as(&self, holder: &str) -> bool {
        holder.starts_with(&format!("{}_{}_", self.name, self.uid))
    }
}

impl ReplicaFleet {
    pub(super) async fn of(installation: &Installation, kind: ServiceKind) -> Result<Self> {
        let pods = installation.pods(kind).await?;
        let places = pods.iter().map(|pod| KnownPod::of(pod).map(Some)).collect::<Result<Vec<_>>>()?;
        let (installation, changing) = (installation.clone(), tokio::sync::Mutex::default());
        Ok(Self { installation, kind, places: Mutex::new(places), changing })
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.installation.cluster.client(), NAMESPACE)
    }

    /// Returns the number of replicas when none is stopped.
    pub(super) fn size(&self) -> usize {
        self.places.lock().len()
    }

    fn present(&self) -> Vec<KnownPod> {
        self.places.lock().iter().flatten().cloned().collect()
    }

    pub(super) fn known(&self, number: usize) -> Option<KnownPod> {
        self.places.lock().get(number).cloned().flatten()
    }

    /// Removes the pod with this number and returns it.
    pub(super) fn forget(&self, number: usize) -> Option<KnownPod> {
        self.places.lock().get_mut(number).and_then(Option::take)
    }

    /// Adds one replica and waits for its pod.
    pub(super) async fn start(&self, number: usize) -> Result<()> {
        let present = self.present();
        let replicas = i32::try_from(present.len() + 1).context("count pods")?;
        self.installation.scale(self.kind, replicas).await?;
        let pods = self.installation.pods(self.kind).await?;
        let new = pods.iter().find(|pod| is_none_of(&present, pod)).context("no pod is new")?;
        let new = KnownPod::of(new)?;
        self.places.lock().get_mut(number).context("no place for a pod")?.replace(new);
        Ok(())
    }

    /// A ReplicaSet deletes pods that are not ready first, whatever their cost. Waits until this pod, which is forgotten, is
    /// not ready, or all others are.
    async fn until_cheapest(&self, name: &str) -> Result<()> {
        let is_unready = |pod: Option<&Pod>| pod.is_none_or(|pod| !is_ready(pod));
        let others = async {
            for other in self.present() {
                self.until(&other.name, "to be ready", |pod| pod.is_none_or(is_ready)).await?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            unready = self.until(name, "not to be ready", is_unready) => unready,
            others = others => others,
        }
    }

    /// Removes one replica, this pod, and waits until the pod is terminating.
    pub(super) async fn remove_pod(&self, name: &str) -> Result<()> {
        let cheapest = json!({"metadata": {"annotations": {COST: "-100"}}});
        let marked = self.pods().patch(name, &PatchParams::default(), &Patch::Merge(&cheapest)).await;
        marked.with_context(|| format!("annotate pod {name}"))?;
        self.until_cheapest(name).await?;
        let deployments: Api<Deployment> = Api::namespaced(self.installation.cluster.client(), NAMESPACE);
        let fewer = json!({"spec": {"replicas": self.present().len()}});
        let kind = self.kind.as_str();
        let scaled = deployments.patch(kind, &PatchParams::default(), &Patch::Merge(&fewer)).await;
        scaled.with_context(|| format!("scale Deployment {kind}"))?;
        self.until(name, "to be the pod that is taken away", |pod| pod.is_none_or(is_leaving)).await
    }

    async fn until(&self, name: &str, what: &str, test: impl Fn(Option<&Pod>) -> bool) -> Result<()> {
        let so = async { await_condition(self.pods(), name, test).await.map(drop).context("watch a pod") };
        within(WAIT, || format!("pod {name} {what}"), so).await
    }

    /// Returns whether the process with which the pod started still runs.
    pub(super) async fn runs(&self, known: &KnownPod) -> Result<bool> {
        let pod = self.pods().get_opt(&known.name).await;
        let pod = pod.with_context(|| format!("read pod {}", known.name))?;
        let is_same = |pod: &Pod| restarts(pod) == known.restarts && container_of(pod).is_ok();
        Ok(pod.is_some_and(|pod| !is_leaving(&pod) && is_same(&pod)))
    }

    /// Returns whether there are ready pods that this fleet did not start.
    pub(super) async fn has_other_pods(&self) -> Result<bool> {
        let (present, pods) = (self.present(), self.installation.pods(self.kind).await?);
        Ok(pods.iter().any(|pod| is_ready(pod) && !is_leaving(pod) && is_none_of(&present, pod)))
    }

    /// Returns the id of the container that runs the pod's process.
    pub(super) async fn container(&self, known: &KnownPod) -> Result<String> {
        let pod = self.pods().get(&known.name).await;
        container_of(&pod.with_context(|| format!("read pod {}", known.name))?)
    }

    pub(super) async fn signal(&self, container: &str, signal: Signal) -> Result<()> {
        self.installation.signal(container, signal).await
    }
}

fn is_none_of(present: &[KnownPod], pod: &Pod) -> bool {
    present.iter().all(|known| known.name != pod.name_any())
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
