//! The pods of one service, and the size of its Deployment, which follows from how many of them there are to be.

use std::net::IpAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde_json::json;

use super::super::{Installation, NAMESPACE, container_of, restarts};
use crate::{
    Kind,
    pods::is_ready,
    wait::{WAIT, within},
};

/// Which pods a ReplicaSet takes away first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) installation: Installation,
    pub(super) kind: Kind,
    /// A place for each pod; those that were ended have left theirs empty.
    places: Mutex<Vec<Option<Known>>>,
    /// Held by who changes how many there are.
    pub(super) changing: tokio::sync::Mutex<()>,
}

/// A pod, as it was when it was new.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) address: IpAddr,
    restarts: i32,
}

impl Known {
    fn of(pod: &Pod) -> Result<Self> {
        let name = pod.name_any();
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("pod {name} has no address"))?;
        Ok(Self { name, address, restarts: restarts(pod) })
    }
}

impl Fleet {
    pub(super) async fn of(installation: &Installation, kind: Kind) -> Result<Self> {
        let pods = installation.pods(kind).await?;
        let places = pods.iter().map(|pod| Known::of(pod).map(Some)).collect::<Result<Vec<_>>>()?;
        let (installation, changing) = (installation.clone(), tokio::sync::Mutex::default());
        Ok(Self { installation, kind, places: Mutex::new(places), changing })
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.installation.cluster.client(), NAMESPACE)
    }

    /// How many there are when none was ended.
    pub(super) fn size(&self) -> usize {
        self.places.lock().len()
    }

    fn present(&self) -> Vec<Known> {
        self.places.lock().iter().flatten().cloned().collect()
    }

    pub(super) fn known(&self, number: usize) -> Option<Known> {
        self.places.lock().get(number).cloned().flatten()
    }

    /// From now on it isn't there any more.
    pub(super) fn forget(&self, number: usize) -> Option<Known> {
        self.places.lock().get_mut(number).and_then(Option::take)
    }

    /// Has one pod more, which takes this place.
    pub(super) async fn start(&self, number: usize) -> Result<()> {
        let present = self.present();
        let replicas = i32::try_from(present.len() + 1).context("count pods")?;
        self.installation.scale(self.kind, replicas).await?;
        let pods = self.installation.pods(self.kind).await?;
        let new = pods.iter().find(|pod| is_none_of(&present, pod)).context("no pod is new")?;
        let new = Known::of(new)?;
        self.places.lock().get_mut(number).context("no place for a pod")?.replace(new);
        Ok(())
    }

    /// A ReplicaSet takes those pods first that aren't ready, whatever they cost: while another one isn't, waits until this one, which
    /// is frozen, isn't either.
    pub(super) async fn until_the_first_to_go(&self, name: &str) -> Result<()> {
        for other in self.present() {
            let pod = self.pods().get(&other.name).await;
            if !is_ready(&pod.with_context(|| format!("read pod {}", other.name))?) {
                let is_unready = |pod: Option<&Pod>| pod.is_none_or(|pod| !is_ready(pod));
                return self.until(name, "not to be ready", is_unready).await;
            }
        }
        Ok(())
    }

    /// Has one pod less, that one, and waits until it is on its way out.
    pub(super) async fn let_go(&self, name: &str) -> Result<()> {
        let cheapest = json!({"metadata": {"annotations": {COST: "-100"}}});
        let marked = self.pods().patch(name, &PatchParams::default(), &Patch::Merge(&cheapest)).await;
        marked.with_context(|| format!("annotate pod {name}"))?;
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

    /// Whether the process runs with which the pod was new.
    pub(super) async fn runs(&self, known: &Known) -> Result<bool> {
        let pod = self.pods().get_opt(&known.name).await;
        let pod = pod.with_context(|| format!("read pod {}", known.name))?;
        let is_same = |pod: &Pod| restarts(pod) == known.restarts && container_of(pod).is_ok();
        Ok(pod.is_some_and(|pod| !is_leaving(&pod) && is_same(&pod)))
    }

    /// Whether pods are ready that were not started here.
    pub(super) async fn has_strangers(&self) -> Result<bool> {
        let (present, pods) = (self.present(), self.installation.pods(self.kind).await?);
        Ok(pods.iter().any(|pod| is_ready(pod) && !is_leaving(pod) && is_none_of(&present, pod)))
    }

    /// The container in which the pod's process runs.
    pub(super) async fn container(&self, known: &Known) -> Result<String> {
        let pod = self.pods().get(&known.name).await;
        container_of(&pod.with_context(|| format!("read pod {}", known.name))?)
    }

    pub(super) async fn signal(&self, container: &str, signal: Signal) -> Result<()> {
        self.installation.signal(container, signal).await
    }
}

fn is_none_of(present: &[Known], pod: &Pod) -> bool {
    present.iter().all(|known| known.name != pod.name_any())
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
