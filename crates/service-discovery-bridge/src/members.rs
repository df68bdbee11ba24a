//! The replicas that share the bindings. Each holds one of the Leases that the chart creates, its slot, and renews it.

mod lease;
mod tenure;

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

pub(crate) use tenure::Tenure;

/// The interval of renewals.
const RENEWAL: Duration = Duration::from_secs(4);
/// The longest time until something is looked at again.
const TICK: Duration = Duration::from_millis(500);
/// The pause before a watch that failed is started again.
const WATCH_RETRY: Duration = Duration::from_secs(1);
/// Marks the Leases of the slots.
const LABEL: (&str, &str) = ("podward.io/member-of", "service-discovery-bridge");

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

type Written = (Instant, kube::Result<Lease>);

/// Takes a slot, keeps it, and reports the members, until `stop`. Then it releases the Lease, so that others take over at
/// once. While other replicas hold all slots, it waits for one.
pub(crate) async fn join(membership: Membership, stop: CancellationToken) {
    let leases: Api<Lease> = Api::namespaced(membership.client.clone(), &membership.namespace);
    let selection = watcher::Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let mut events = pin!(watcher(leases.clone(), selection));
    let mut writes: FuturesUnordered<BoxFuture<'static, Written>> = FuturesUnordered::new();
    let mut joining = Joining::new(membership, leases);
    while !stop.is_cancelled() {
        let may_watch = joining.now() >= joining.watch_due;
        tokio::select! {
            Some(event) = events.next(), if may_watch => joining.seen(event),
            Some(written) = writes.next(), if !writes.is_empty() => joining.written(written),
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => {}
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

struct Joining {
    membership: Membership,
    leases: Api<Lease>,
    start: Instant,
    table: SlotTable,
    /// The names of a list that is not complete yet.
    listing: HashSet<String>,
    /// True once a list was complete.
    listed: bool,
    /// True while the watch works.
    watches: bool,
    watch_due: Duration,
    write_due: Duration,
    failures: u32,
    /// Why this replica has no slot, as it was logged last.
    waits: Option<&'static str>,
}

impl Joining {
    fn new(membership: Membership, leases: Api<Lease>) -> Self {
        Self {
            table: SlotTable::new(membership.name.clone()),
            membership,
            leases,
            start: Instant::now(),
            listing: HashSet::new(),
            listed: false,
            watches: false,
            watch_due: Duration::ZERO,
            write_due: Duration::ZERO,
            failures: 0,
            waits: None,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn seen(&mut self, event: watcher::Result<Event<Lease>>) {
        let now = self.now();
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(lease)) => {
                self.listing.insert(lease.name_any());
                self.table.observe(lease::slot(&lease), now);
            }
            Ok(Event::InitDone) => {
                self.table.retain(&self.listing);
                (self.listed, self.watches) = (true, true);
            }
            Ok(Event::Apply(lease)) => self.table.observe(lease::slot(&lease), now),
            Ok(Event::Delete(lease)) => self.table.forget(&lease.name_any()),
            Err(error) => {
                tracing::warn!(%error, "the watch of the replicas' Leases failed; it is started again");
                self.watches = false;
                self.watch_due = now + WATCH_RETRY;
            }
        }
    }

    fn publish(&mut self) {
        let now = self.now();
        if !self.watches {
            // The others may renew without being seen.
            self.table.unseen(now);
        }
        if !self.listed {
            return;
        }
        self.membership.metrics.member.set(i64::from(self.table.own().next().is_some()));
        let present = self.table.members(now);
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
        let (slot, takes) = match self.table.step(now) {
            SlotStep::Renew(slot) => (slot.clone(), false),
            SlotStep::Take(slot) => (slot.clone(), true),
            SlotStep::AllTaken => {
                self.waits("other replicas hold all Leases, so this one keeps no bindings and waits for one; run fewer replicas");
                return None;
            }
            SlotStep::NoSlots => {
                self.waits("there is no Lease for this replica, so it keeps no bindings; helm upgrade creates them again");
                return None;
            }
        };
        let (leases, name) = (self.leases.clone(), self.membership.name.clone());
        let write = async move {
            let begin = Instant::now();
            (begin, lease::hold(&leases, &slot, &name, takes).await)
        };
        Some(write.boxed())
    }

    fn waits(&mut self, why: &'static str) {
        if self.waits.replace(why) != Some(why) {
            let Membership { namespace, name, .. } = &self.membership;
            tracing::warn!(namespace, replica = name, label = format!("{}={}", LABEL.0, LABEL.1), "{why}");
        }
    }

    fn written(&mut self, (begin, result): Written) {
        let now = self.now();
        match result {
            Ok(lease) => {
                self.membership.tenure.confirm(begin);
                self.table.observe(lease::slot(&lease), now);
                if self.waits.take().is_some() {
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
