//! How long no lifecycle-controller decides: after a start, and after the loss of a leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::TryFutureExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use podward_support::{Installation, Podward, PodwardService, ServiceKind, WAIT, await_condition, within};
use serde::{Deserialize, Serialize};

use super::services::ServiceMemory;
use crate::fleet::PodFleet;
use crate::usage::Usage;

const KIND: ServiceKind = ServiceKind::LifecycleController;
/// From the end of a process until the kubelet has started its container again for the first time. It looks at its containers
/// once a second, and a start took 0.2 s on the real node of the tests.
const CONTAINER_RESTART: Duration = Duration::from_millis(1200);

/// From the start of a lifecycle-controller, or a signal to the leader, until an operation goes on that begins
/// meanwhile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Succession {
    /// The time until the new leader has the Lease, in seconds.
    pub leading_seconds: f64,
    /// The time until the first decision, `pre-checked`, is stored, in seconds.
    pub decision_seconds: f64,
    /// The time until the pod has left service and `operate` is stored, in seconds.
    pub operate_seconds: f64,
    /// The memory of the new leader at rest after it.
    pub memory: ServiceMemory,
}

/// The lifecycle-controllers.
pub(super) struct Candidates<'a> {
    podward: &'a Podward,
    fleet: &'a PodFleet,
    leases: Api<Lease>,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(podward: &'a Podward, fleet: &'a PodFleet) -> Candidates<'a> {
        let leases = Api::namespaced(podward.cluster().client(), Installation::NAMESPACE);
        Candidates { podward, fleet, leases }
    }

    /// Stops all, and starts one. The operation on `pod` begins before the start.
    pub(super) async fn start(&self, pod: &str) -> Result<Succession> {
        let leader = self.leader().await?;
        for replica in self.others(&leader) {
            replica.stop().await?;
        }
        leader.stop().await?;
        self.fleet.begin(pod).await?;
        self.measure(pod, "", leader.start()).await
    }

    /// Sends SIGTERM to the leader. The operation on `pod` begins when it has released the Lease, which is its last
    /// work.
    pub(super) async fn after_sigterm(&self, pod: &str) -> Result<Succession> {
        self.start_all().await?;
        let (leader, holder) = (self.leader().await?, self.holder().await?);
        let begin = async {
            self.until_holder("the leader to release the Lease", |found| found != holder).await?;
            self.fleet.begin(pod).await
        };
        let work = async { tokio::try_join!(leader.stop(), begin).map(drop) };
        self.measure(pod, &holder, work).await
    }

    /// Sends SIGKILL to the leader. The operation on `pod` begins when its process has ended.
    pub(super) async fn after_sigkill(&self, pod: &str) -> Result<Succession> {
        self.after_kill(pod, async |_| Ok(())).await
    }

    /// Sends SIGKILL to the leader, and starts it again as the kubelet does with a container. The operation on `pod` begins
    /// when its process has ended.
    pub(super) async fn after_crash(&self, pod: &str) -> Result<Succession> {
        self.after_kill(pod, async |leader: &PodwardService| {
            // The kubelet's part in the measured time. Nothing here waits for a condition.
            tokio::time::sleep(CONTAINER_RESTART).await;
            leader.start().await
        })
        .await
    }

    async fn after_kill(
        &self,
        pod: &str,
        then: impl AsyncFnOnce(&PodwardService) -> Result<()>,
    ) -> Result<Succession> {
        self.start_all().await?;
        let (leader, holder) = (self.leader().await?, self.holder().await?);
        let work = async {
            leader.kill().await?;
            self.fleet.begin(pod).await?;
            then(&leader).await
        };
        self.measure(pod, &holder, work).await
    }

    /// Measures from the begin of `work` until a leader that is not `before` has decided about the operation on `pod`.
    /// Then ends the operation.
    async fn measure(
        &self,
        pod: &str,
        before: &str,
        work: impl Future<Output = Result<()>>,
    ) -> Result<Succession> {
        let pods = [pod.to_owned()];
        let begun = Instant::now();
        let seconds = |()| begun.elapsed().as_secs_f64();
        let leads = self.until_holder("another leader", |found| !found.is_empty() && found != before);
        let ((), leading_seconds, decision_seconds, operate_seconds) = tokio::try_join!(
            work,
            leads.map_ok(seconds),
            self.fleet.until_pre_checked(&pods).map_ok(seconds),
            self.fleet.until_operate(&pods).map_ok(seconds),
        )?;
        self.fleet.finish(pod).await?;
        self.fleet.until_available(&pods).await?;
        self.fleet.settle().await;
        let memory = ServiceMemory::of(&Usage::of_replica(self.podward, &*self.leader().await?)?)?;
        Ok(Succession { leading_seconds, decision_seconds, operate_seconds, memory })
    }

    async fn leader(&self) -> Result<Arc<PodwardService>> {
        self.podward.leader().await?.context("no lifecycle-controller leads")
    }

    fn others(&self, leader: &PodwardService) -> Vec<Arc<PodwardService>> {
        let mut replicas = self.podward.services(KIND);
        replicas.retain(|replica| replica.name() != leader.name());
        replicas
    }

    async fn start_all(&self) -> Result<()> {
        for replica in self.podward.services(KIND) {
            replica.start().await?;
        }
        self.fleet.settle().await;
        Ok(())
    }

    async fn holder(&self) -> Result<String> {
        let lease = self.leases.get(KIND.as_str()).await.context("read the Lease")?;
        let holder = holder_of(Some(&lease)).to_owned();
        ensure!(!holder.is_empty(), "nothing holds the Lease");
        Ok(holder)
    }

    async fn until_holder(&self, what: &str, test: impl Fn(&str) -> bool) -> Result<()> {
        let wait = async {
            let test = |lease: Option<&Lease>| test(holder_of(lease));
            await_condition(self.leases.clone(), KIND.as_str(), test).await.map(drop)
        };
        within(WAIT, || what.to_owned(), wait).await
    }
}

fn holder_of(lease: Option<&Lease>) -> &str {
    lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref()).unwrap_or_default()
}
