//! Leader election by a `Lease` (coordination.k8s.io/v1), as client-go does it, except that a standby watches the lease and
//! doesn't poll it: it takes over the moment the holder lets go.
//!
//! Own code, because the crates there are for this poll, or speak to another version of kube.
//!
//! # Guarantees
//! - Every write carries the resource version that it was decided on, so two replicas never both succeed.
//! - Expiry is judged by the standby's own clock, from the moment it saw the last renewal: clocks need not agree.
//! - A leader that can't renew steps down before its lease runs out for others.
//!
//! # Caveat
//! As with every lease, a leader that is stopped (SIGSTOP, a stalled machine) may still send a request that it had begun. What
//! it writes must carry preconditions of its own.

mod decide;

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use decide::{Action, Observed, decide};

/// Which lease, for whom, and how patient.
#[derive(Clone, Debug)]
pub(crate) struct LeaseParams {
    /// Namespace of the lease.
    pub(crate) namespace: String,
    /// Name of the lease.
    pub(crate) name: String,
    /// Who holds it: unique among the replicas (the pod's name).
    pub(crate) identity: String,
    /// For how long the lease is good after a renewal; the longest that others wait after the holder was killed.
    pub(crate) duration: Duration,
}

impl LeaseParams {
    /// The leader renews this often.
    fn renew_every(&self) -> Duration {
        self.duration / 3
    }

    /// Without a renewal for this long the leader steps down: sooner than others may take the lease.
    fn give_up_after(&self) -> Duration {
        self.duration * 2 / 3
    }
}

/// A running candidacy.
#[derive(Debug)]
pub(crate) struct Candidacy {
    /// Whether this replica leads.
    pub(crate) leading: watch::Receiver<bool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidacy {
    /// Lets go of the lease, if it is held. Stop the work that needs it first: another replica starts at once.
    pub(crate) async fn release(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "lease task");
        }
    }
}

/// Stands for election until [`Candidacy::release`] is called. Errors of the API server are logged and tried again.
#[must_use]
pub(crate) fn stand(client: Client, params: LeaseParams) -> Candidacy {
    let (leads, leading) = watch::channel(false);
    let stop = CancellationToken::new();
    let candidate = Candidate {
        leases: Api::namespaced(client, &params.namespace),
        params,
        leads,
        observed: None,
        renewed: None,
        retry_at: None,
    };
    let task = tokio::spawn(candidate.run(stop.clone()));
    Candidacy { leading, stop, task }
}

struct Candidate {
    leases: Api<Lease>,
    params: LeaseParams,
    leads: watch::Sender<bool>,
    observed: Option<Observed>,
    /// When this replica last wrote the lease with success.
    renewed: Option<Instant>,
    retry_at: Option<Instant>,
}

impl Candidate {
    async fn run(mut self, stop: CancellationToken) {
        let only_ours = watcher::Config::default().fields(&format!("metadata.name={}", self.params.name));
        let mut events = watcher(self.leases.clone(), only_ours).default_backoff().boxed();
        let mut synced = false;
        loop {
            let action = if synced { self.next_action() } else { Action::Wait(Duration::from_secs(3600)) };
            match action {
                Action::Wait(wait) => tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(wait) => {}
                    event = events.next() => match event {
                        Some(Ok(event)) => synced |= self.saw(event),
                        Some(Err(error)) => tracing::warn!(%error, lease = self.params.name, "could not watch the lease; trying again"),
                        None => break,
                    },
                },
                Action::StepDown => {
                    tracing::warn!(lease = self.params.name, "could not renew the lease in time: no longer the leader");
                    self.set_leading(false);
                    self.renewed = None;
                }
                write => self.write(&write).await,
            }
        }
        self.let_go().await;
    }

    fn next_action(&self) -> Action {
        let now = Instant::now();
        match self.retry_at {
            // A failed write is not repeated at once; but a leader still notices that its time is up.
            Some(at) if now < at && !self.is_overdue(now) => Action::Wait(at - now),
            _ => decide(self.observed.as_ref(), self.renewed, now, &self.params),
        }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.renewed.is_some_and(|renewed| now >= renewed + self.params.give_up_after())
    }

    /// Takes note of an event; tells whether the first list is complete.
    fn saw(&mut self, event: watcher::Event<Lease>) -> bool {
        match event {
            watcher::Event::Apply(lease) | watcher::Event::InitApply(lease) => self.observe(&lease),
            watcher::Event::Delete(_) => self.observed = None,
            watcher::Event::Init => {}
            watcher::Event::InitDone => return true,
        }
        let holds = self.observed.as_ref().is_some_and(|observed| observed.holder == self.params.identity);
        if !holds && *self.leads.borrow() {
            tracing::warn!(lease = self.params.name, "somebody else has taken the lease: no longer the leader");
            self.set_leading(false);
            self.renewed = None;
        }
        false
    }

    fn observe(&mut self, lease: &Lease) {
        let version = lease.resource_version().unwrap_or_default();
        if self.observed.as_ref().is_some_and(|observed| observed.version == version) {
            return;
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        self.observed = Some(Observed {
            holder: spec.holder_identity.unwrap_or_default(),
            version,
            duration: Duration::from_secs(seconds),
            transitions: spec.lease_transitions.unwrap_or_default(),
            at: Instant::now(),
        });
    }

    async fn write(&mut self, action: &Action) {
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.params.duration.as_secs()).unwrap_or(i32::MAX);
        let call = async {
            match action {
                Action::Create => {
                    let lease = Lease {
                        metadata: ObjectMeta { name: Some(self.params.name.clone()), ..ObjectMeta::default() },
                        spec: Some(LeaseSpec {
                            holder_identity: Some(self.params.identity.clone()),
                            lease_duration_seconds: Some(seconds),
                            acquire_time: Some(now.clone()),
                            renew_time: Some(now.clone()),
                            lease_transitions: Some(0),
                            ..LeaseSpec::default()
                        }),
                    };
                    self.leases.create(&PostParams::default(), &lease).await
                }
                Action::Acquire { version, transitions } => {
                    let spec = json!({
                        "holderIdentity": self.params.identity, "leaseDurationSeconds": seconds,
                        "acquireTime": now, "renewTime": now, "leaseTransitions": transitions + 1,
                    });
                    self.patch(version, spec).await
                }
                Action::Renew { version } => {
                    self.patch(version, json!({"renewTime": now, "leaseDurationSeconds": seconds})).await
                }
                Action::Wait(_) | Action::StepDown => return None,
            }
            .into()
        };
        let started = Instant::now();
        // An answer that comes after the leader would have to step down is of no use.
        let result = tokio::time::timeout(self.params.renew_every(), call).await;
        self.retry_at = None;
        match result {
            Ok(None) => {}
            Ok(Some(Ok(lease))) => {
                self.observe(&lease);
                self.renewed = Some(started);
                self.set_leading(true);
            }
            Ok(Some(Err(kube::Error::Api(status)))) if status.code == 409 => {
                // Somebody else was faster; the watch tells who.
                self.retry_at = Some(Instant::now() + Duration::from_millis(500));
            }
            Ok(Some(Err(error))) => {
                tracing::warn!(%error, lease = self.params.name, "could not write the lease; trying again");
                self.retry_at = Some(Instant::now() + Duration::from_secs(1));
            }
            Err(_) => {
                tracing::warn!(lease = self.params.name, "no answer to a write of the lease; trying again");
                self.retry_at = Some(Instant::now() + Duration::from_millis(200));
            }
        }
    }

    async fn patch(&self, version: &str, spec: serde_json::Value) -> kube::Result<Lease> {
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        self.leases.patch(&self.params.name, &PatchParams::default(), &Patch::Merge(&patch)).await
    }

    async fn let_go(&self) {
        let held = self.observed.as_ref().filter(|observed| observed.holder == self.params.identity);
        self.set_leading(false);
        let Some(held) = held else { return };
        let call = self.patch(&held.version, json!({"holderIdentity": ""}));
        match tokio::time::timeout(Duration::from_secs(2), call).await {
            Ok(Ok(_)) => tracing::info!(lease = self.params.name, "let go of the lease"),
            Ok(Err(error)) => tracing::warn!(%error, lease = self.params.name, "could not let go of the lease; it runs out by itself"),
            Err(_) => tracing::warn!(lease = self.params.name, "no answer when letting go of the lease; it runs out by itself"),
        }
    }

    fn set_leading(&self, leading: bool) {
        self.leads.send_if_modified(|present| {
            let changed = *present != leading;
            if changed && leading {
                tracing::info!(lease = self.params.name, identity = self.params.identity, "now the leader");
            }
            *present = leading;
            changed
        });
    }
}
