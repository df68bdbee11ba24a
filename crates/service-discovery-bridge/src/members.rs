//! The replicas that share the bindings. Each holds one of up to 16 Leases, its slot, and renews it. The replicas
//! create the Leases that they need.

mod fence;
mod lease;
mod tenure;
#[cfg(test)]
mod tests;
mod watch_progress;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics::BridgeMetrics;
use crate::model::{Slot, SlotStep, SlotTable};
use lease::LABEL;
use watch_progress::WatchProgress;

pub(crate) use fence::Fence;
pub(crate) use tenure::Tenure;

/// The interval of renewals.
const RENEWAL: Duration = Duration::from_secs(4);
/// The longest time until something is looked at again.
const TICK: Duration = Duration::from_millis(500);
/// The pause before a watch that failed is started again.
const WATCH_RETRY: Duration = Duration::from_secs(1);
/// The largest number of slots. The Role in the chart names each of them.
const SLOTS: usize = 16;

/// The names of the present members, sorted.
pub(crate) type Members = Arc<[String]>;

/// What joining needs.
pub(crate) struct Membership {
    pub(crate) client: Client,
    /// The namespace of the Leases.
    pub(crate) namespace: String,
    /// The name of this replica. No other has the same one.
    pub(crate) name: String,
    pub(crate) members: watch::Sender<Members>,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) metrics: Arc<BridgeMetrics>,
}

/// A write to the Lease of a slot that has ended.
struct Written {
    begin: Instant,
    /// False if the write only created the Lease.
    holds: bool,
    result: kube::Result<Lease>,
}

/// Takes a slot, keeps it, and reports the members, until `stop`. Then it releases the Lease, so that others take over at
/// once. While other replicas hold all slots, it waits for one.
pub(crate) async fn join(membership: Membership, stop: CancellationToken) {
    let leases: Api<Lease> = Api::namespaced(membership.client.clone(), &membership.namespace);
    let selection = watcher::Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let watch = || watcher(leases.clone(), selection.clone());
    let mut events = pin!(watch());
    let mut writes: FuturesUnordered<BoxFuture<'static, Written>> = FuturesUnordered::new();
    let mut joining = Joining::new(membership, leases.clone());
    while !stop.is_cancelled() {
        let may_watch = joining.now() >= joining.watch_due;
        tokio::select! {
            Some(event) = events.next(), if may_watch => joining.seen(event),
            Some(written) = writes.next(), if !writes.is_empty() => joining.written(written),
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => {}
        }
        if joining.wants_new_watch() {
            events.set(watch());
        }
        joining.publish();
        if writes.is_empty() && !stop.is_cancelled() {
            writes.extend(joining.next_write());
        }
    }
    // The version of the slot is that of the last write.
    while let Some(written) = writes.next().await {
        joining.written(written);
    }
    joining.leave().await;
}

fn slot_names() -> Vec<String> {
    (0..SLOTS).map(|number| format!("{}-{number}", LABEL.1)).collect()
}

struct Joining {
    membership: Membership,
    leases: Api<Lease>,
    start: Instant,
    table: SlotTable,
    /// The names of a list that is not complete yet, and when it began.
    listing: (HashSet<String>, Duration),
    /// True once a list was complete.
    listed: bool,
    progress: WatchProgress,
    watch_due: Duration,
    write_due: Duration,
    failures: u32,
    /// True if the log has that other replicas hold all slots.
    waits: bool,
}

impl Joining {
    fn new(membership: Membership, leases: Api<Lease>) -> Self {
        Self {
            table: SlotTable::new(membership.name.clone(), slot_names()),
            membership,
            leases,
            start: Instant::now(),
            listing: Default::default(),
            listed: false,
            progress: WatchProgress::default(),
            watch_due: Duration::ZERO,
            write_due: Duration::ZERO,
            failures: 0,
            waits: false,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn seen(&mut self, event: watcher::Result<Event<Lease>>) {
        let now = self.now();
        // `Init` comes before the request.
        if !matches!(event, Ok(Event::Init) | Err(_)) {
            self.progress.reported(now);
        }
        match event {
            Ok(Event::Init) => self.listing = (HashSet::new(), now),
            Ok(Event::InitApply(lease)) => {
                self.listing.0.insert(lease.name_any());
                self.table.observe(lease::slot(&lease), now);
            }
            Ok(Event::InitDone) => {
                self.table.complete(&self.listing.0, self.listing.1);
                self.listed = true;
            }
            Ok(Event::Apply(lease)) => self.table.observe(lease::slot(&lease), now),
            Ok(Event::Delete(lease)) => self.table.forget(&lease.name_any()),
            Err(error) => {
                tracing::warn!(%error, "the watch of the replicas' Leases failed; it is started again");
                self.watch_due = now + WATCH_RETRY;
            }
        }
    }

    /// Returns whether the watch is to be started again, with a new list.
    fn wants_new_watch(&mut self) -> bool {
        let now = self.now();
        let is_doubtful = self.table.is_doubtful(now);
        let is_overdue = self.progress.is_overdue(is_doubtful, now);
        if is_overdue {
            if is_doubtful {
                tracing::info!("a replica seems not to renew its Lease; the Leases are listed");
            } else {
                tracing::warn!(
                    "the watch of the replicas' Leases does not report a renewal of this replica; it is started again"
                );
            }
            self.progress.started(now);
        }
        is_overdue
    }

    fn publish(&mut self) {
        if !self.listed {
            return;
        }
        self.membership.metrics.member.set(i64::from(self.table.own().next().is_some()));
        let present = self.table.members();
        self.membership.members.send_if_modified(|members| {
            let changed = **members != *present;
            if changed {
                tracing::info!(members = present.join(", "), "the replicas that share the bindings");
                *members = present.into();
            }
            changed
        });
    }

    fn next_write(&mut self) -> Option<BoxFuture<'static, Written>> {
        let now = self.now();
        if !self.listed || now < self.write_due {
            return None;
        }
        let (leases, own, begin) = (self.leases.clone(), self.membership.name.clone(), Instant::now());
        let (slot, takes) = match self.table.step() {
            SlotStep::Renew(slot) => (slot.clone(), false),
            SlotStep::Take(slot) => (slot.clone(), true),
            SlotStep::Create(name) => {
                let name = name.to_owned();
                let write = async move {
                    Written { begin, holds: false, result: lease::create(&leases, &name).await }
                };
                return Some(write.boxed());
            }
            SlotStep::AllTaken => {
                self.waits_for_others();
                return None;
            }
        };
        let write = async move {
            Written { begin, holds: true, result: lease::hold(&leases, &slot, &own, takes).await }
        };
        Some(write.boxed())
    }

    fn waits_for_others(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            let Membership { namespace, name, .. } = &self.membership;
            tracing::warn!(
                namespace,
                replica = name,
                label = format!("{}={}", LABEL.0, LABEL.1),
                "other replicas hold all Leases, so this one keeps no bindings and waits for one; run fewer replicas"
            );
        }
    }

    fn written(&mut self, Written { begin, holds, result }: Written) {
        let now = self.now();
        match result {
            // This replica, or another one, takes it with its next write.
            Ok(lease) if !holds => {
                tracing::info!(lease = lease.name_any(), "created a Lease for a replica");
                self.table.observe(lease::slot(&lease), now);
            }
            Ok(lease) => {
                self.membership.tenure.confirm(begin);
                self.progress.wrote(begin.saturating_duration_since(self.start));
                self.table.observe(lease::slot(&lease), now);
                if std::mem::take(&mut self.waits) {
                    tracing::info!(lease = lease.name_any(), "this replica has a Lease now");
                }
                self.failures = 0;
                self.write_due = now + RENEWAL;
            }
            // Another replica was faster, or the watch is late.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                self.write_due = now + Duration::from_millis(fastrand::u64(100..500));
            }
            Err(error) => {
                self.failures += 1;
                let pause = delay_after(API_SERVER, self.failures).min(RENEWAL);
                tracing::warn!(%error, "could not write the Lease of this replica; retrying with back-off");
                self.write_due = now + pause;
            }
        }
    }

    async fn leave(self) {
        let own: Vec<Slot> = self.table.own().cloned().collect();
        for slot in own {
            if let Err(error) = lease::give_back(&self.leases, &slot).await {
                tracing::warn!(
                    lease = slot.name, %error, "could not give back the Lease of this replica; others wait until it expires"
                );
            }
        }
    }
}
