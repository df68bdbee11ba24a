//! The candidate: watches the Lease, and writes it when [`decide`] says so.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::decide::{LeaseAction, LeaseWrite, ObservedLease, decide};
use super::params::{GRPC_ADDRESS, LeaseParams};
use crate::progress::Progress;

/// The delay after a write that failed. The watch may end it sooner.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The release of the Lease may take this much of the time that a process has to end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a version of the Lease comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseSource {
    /// The watch, or the answer to a write. The watch also reports this replica's own writes, maybe late.
    Watch,
    /// A read of the stored Lease after a conflict. It counts even if its version is lower: a restored backup of etcd
    /// has lower resource versions.
    Read,
}

pub(super) struct Candidate {
    leases: Api<Lease>,
    params: LeaseParams,
    leads: watch::Sender<bool>,
    holder_address: watch::Sender<Option<String>>,
    observed: Option<ObservedLease>,
    /// True after the first list. Before it, `None` in `observed` does not mean that there is no Lease.
    synced: bool,
    /// True if the list that is being received contains the Lease.
    listed: bool,
    renewed: Option<Instant>,
    retry_at: Option<Instant>,
    progress: Progress,
}

impl Candidate {
    pub(super) fn new(
        leases: Api<Lease>,
        params: LeaseParams,
        leads: watch::Sender<bool>,
        holder_address: watch::Sender<Option<String>>,
        progress: Progress,
    ) -> Self {
        Self {
            leases,
            params,
            leads,
            holder_address,
            observed: None,
            synced: false,
            listed: false,
            renewed: None,
            retry_at: None,
            progress,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let ours = watcher::Config::default().fields(&format!("metadata.name={}", self.params.name));
        let mut events = watcher(self.leases.clone(), ours).default_backoff().boxed();
        while !stop.is_cancelled() {
            let wake = match self.next() {
                LeaseAction::StepDown => {
                    let why = match self.progress.stalled_for() {
                        Some(_) => "its work does not end",
                        None => "the Lease was not renewed in time, or has another holder",
                    };
                    self.step_down(why);
                    continue;
                }
                LeaseAction::LeaseWrite(write) => {
                    self.write(&write).await;
                    continue;
                }
                LeaseAction::Wait(until) => until,
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(wake) => {}
                event = events.next() => match event {
                    Some(Ok(event)) => self.handle(event),
                    Some(Err(error)) => {
                        tracing::warn!(lease = self.params.name, "could not watch the Lease, trying again: {error}");
                    }
                    None => break,
                },
            }
        }
        self.release().await;
    }

    fn next(&self) -> LeaseAction {
        let now = Instant::now();
        if !self.synced {
            return LeaseAction::Wait(now + self.params.duration);
        }
        if self.progress.stalled_for().is_some() {
            // The Lease expires, and a replica that works acquires it.
            return match self.renewed {
                Some(_) => LeaseAction::StepDown,
                None => LeaseAction::Wait(now + self.params.renew_every()),
            };
        }
        let action = decide(self.observed.as_ref(), self.renewed, now, &self.params);
        match (action, self.retry_at) {
            // A write is delayed after a failure; stepping down never is.
            (LeaseAction::LeaseWrite(_), Some(retry_at)) if now < retry_at => LeaseAction::Wait(retry_at),
            (action, _) => action,
        }
    }

    fn handle(&mut self, event: watcher::Event<Lease>) {
        match event {
            watcher::Event::Init => self.listed = false,
            watcher::Event::InitApply(lease) => {
                self.listed = true;
                self.observe(&lease, LeaseSource::Watch);
            }
            watcher::Event::InitDone => {
                if !self.listed {
                    self.observe_none();
                }
                self.synced = true;
            }
            watcher::Event::Apply(lease) => self.observe(&lease, LeaseSource::Watch),
            watcher::Event::Delete(_) => self.observe_none(),
        }
    }

    fn observe(&mut self, lease: &Lease, source: LeaseSource) {
        let spec = lease.spec.as_ref();
        let seconds =
            spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let seen = ObservedLease {
            holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
            duration: seconds.map_or(self.params.duration, Duration::from_secs),
            transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
            at: Instant::now(),
        };
        let known = self.observed.as_ref();
        let is_late = |known: &ObservedLease| source == LeaseSource::Watch && seen.is_older_than(known);
        if known.is_some_and(|known| is_late(known) || seen.version == known.version) {
            return;
        }
        if known.is_none_or(|known| known.holder != seen.holder) {
            // The reason for which the last write failed may be gone.
            self.retry_at = None;
        }
        let address =
            lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(GRPC_ADDRESS));
        self.publish_address(address.filter(|_| !seen.holder.is_empty()).cloned());
        self.observed = Some(seen);
    }

    fn observe_none(&mut self) {
        self.observed = None;
        self.publish_address(None);
    }

    fn publish_address(&self, address: Option<String>) {
        self.holder_address.send_if_modified(|known| {
            let changes = *known != address;
            *known = address;
            changes
        });
    }

    async fn write(&mut self, write: &LeaseWrite) {
        let started = Instant::now();
        // The leader must not wait for an answer longer than it may lead.
        let remaining = match self.renewed {
            Some(renewed) => (renewed + self.params.renew_deadline()).saturating_duration_since(started),
            None => self.params.renew_every(),
        };
        let result = timeout(remaining.min(self.params.renew_every()), self.call(write)).await;
        self.retry_at = Some(Instant::now() + RETRY_DELAY.min(self.params.renew_every() / 4));
        match result {
            Ok(Ok(lease)) => {
                self.observe(&lease, LeaseSource::Watch);
                self.retry_at = None;
                self.renewed = Some(started);
                if !self.leads.send_replace(true) {
                    tracing::info!(lease = self.params.name, identity = self.params.identity, "leading");
                }
            }
            // Another writer was faster. Read the Lease, because the watch may be late.
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
                self.read_again().await;
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = self.params.name, "could not write the Lease, trying again: {error}");
            }
            Err(_) => {
                tracing::warn!(lease = self.params.name, "no answer to a write of the Lease, trying again");
            }
        }
    }

    async fn read_again(&mut self) {
        match timeout(self.params.renew_every() / 2, self.leases.get_opt(&self.params.name)).await {
            Ok(Ok(Some(lease))) => self.observe(&lease, LeaseSource::Read),
            Ok(Ok(None)) => self.observe_none(),
            Ok(Err(error)) => tracing::warn!(lease = self.params.name, "could not read the Lease: {error}"),
            Err(_) => tracing::warn!(lease = self.params.name, "no answer to a read of the Lease"),
        }
    }

    async fn call(&self, write: &LeaseWrite) -> kube::Result<Lease> {
        let (now, seconds) = (MicroTime(Timestamp::now()), self.params.duration_seconds());
        let (version, transitions) = match &self.observed {
            Some(observed) => (observed.version.as_str(), observed.transitions),
            None => ("", 0),
        };
        match write {
            LeaseWrite::Create => {
                let spec = LeaseSpec {
                    holder_identity: Some(self.params.identity.clone()),
                    lease_duration_seconds: Some(seconds),
                    acquire_time: Some(now.clone()),
                    renew_time: Some(now),
                    lease_transitions: Some(0),
                    ..LeaseSpec::default()
                };
                let address = self.params.address.clone().map(|address| (GRPC_ADDRESS.to_owned(), address));
                let metadata = ObjectMeta {
                    name: Some(self.params.name.clone()),
                    annotations: address.map(|address| [address].into()),
                    ..ObjectMeta::default()
                };
                self.leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
            }
            LeaseWrite::Acquire => {
                let spec = json!({
                    "holderIdentity": self.params.identity, "leaseDurationSeconds": seconds,
                    "acquireTime": now, "renewTime": now, "leaseTransitions": transitions.saturating_add(1),
                });
                // Null removes the address of the previous holder.
                let annotations = json!({ GRPC_ADDRESS: self.params.address });
                self.patch(json!({"resourceVersion": version, "annotations": annotations}), spec).await
            }
            LeaseWrite::Renew => {
                let spec = json!({"renewTime": now, "leaseDurationSeconds": seconds});
                self.patch(json!({"resourceVersion": version}), spec).await
            }
        }
    }

    async fn patch(&self, metadata: Value, spec: Value) -> kube::Result<Lease> {
        let patch = json!({"metadata": metadata, "spec": spec});
        self.leases.patch(&self.params.name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    fn step_down(&mut self, why: &str) {
        self.renewed = None;
        if self.leads.send_replace(false) {
            tracing::warn!(lease = self.params.name, "stopped leading: {why}");
        }
    }

    async fn release(mut self) {
        self.leads.send_replace(false);
        match timeout(RELEASE_TIMEOUT, self.empty_holder()).await {
            Ok(Ok(true)) => tracing::info!(lease = self.params.name, "released the Lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    lease = self.params.name,
                    "could not release the Lease, it expires by itself: {error}"
                );
            }
            Err(_) => {
                tracing::warn!(
                    lease = self.params.name,
                    "no answer to the release of the Lease, it expires by itself"
                );
            }
        }
    }

    /// Removes this replica as the holder. Returns false if it was not the holder.
    async fn empty_holder(&mut self) -> kube::Result<bool> {
        loop {
            let Some(held) = self.observed.as_ref().filter(|lease| lease.holder == self.params.identity)
            else {
                return Ok(false);
            };
            let held = json!({"resourceVersion": held.version});
            match self.patch(held, json!({"holderIdentity": ""})).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.is_conflict() => self.read_again().await,
                Err(error) => return Err(error),
            }
        }
    }
}
