//! The replicas that share the bindings. Each has a Lease of its own, which it renews.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use podward_runtime::retry::{API_SERVER, delay_after};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A member whose Lease was not renewed for this time has left.
const EXPIRY: Duration = Duration::from_secs(12);
/// The interval of renewals.
const RENEWAL: Duration = Duration::from_secs(4);
/// Marks the Leases of the members.
const LABEL: (&str, &str) = ("podward.io/member-of", "service-discovery-bridge");
const MANAGER: &str = "service-discovery-bridge";

/// This member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The name of its pod, and of its Lease.
    pub(crate) name: String,
    /// The UID of its pod. The Lease is removed with the pod.
    pub(crate) uid: Option<String>,
}

/// The names of the present members, sorted.
pub(crate) type Members = Arc<[String]>;

/// Keeps the Lease of this member and watches those of the others until `stop`. Then it removes its own, so that the others
/// take over at once.
///
/// Two members may be responsible for a binding for a moment: each write to a registry is idempotent and conditional.
pub(crate) async fn join(
    client: Client,
    namespace: String,
    member: Member,
    members: watch::Sender<Members>,
    stop: CancellationToken,
) {
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    let name = member.name.clone();
    let renewing = renew(leases.clone(), member, stop.clone());
    let watching = observe(leases.clone(), name.clone(), members, stop.clone());
    tokio::join!(renewing, watching);
    if let Err(error) = leases.delete(&name, &DeleteParams::default()).await {
        tracing::warn!(lease = name, %error, "could not remove the Lease of this replica; others wait until it expires");
    }
}

async fn renew(leases: Api<Lease>, Member { name, uid }: Member, stop: CancellationToken) {
    let owner = uid.map(|uid| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.clone(),
        uid,
        ..OwnerReference::default()
    });
    let mut failures = 0;
    loop {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
                owner_references: owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(name.clone()),
                lease_duration_seconds: i32::try_from(EXPIRY.as_secs()).ok(),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        let apply = PatchParams::apply(MANAGER).force();
        let renewed = stop.run_until_cancelled(leases.patch(&name, &apply, &Patch::Apply(&lease))).await;
        let pause = match renewed {
            None => return,
            Some(Ok(_)) => {
                failures = 0;
                RENEWAL
            }
            Some(Err(error)) => {
                failures += 1;
                tracing::warn!(lease = name, %error, "could not renew the Lease of this replica; retrying with back-off");
                delay_after(API_SERVER, failures).min(RENEWAL)
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Watches the Leases. A Lease has expired when it was not renewed for [`EXPIRY`], by the clock of this process.
async fn observe(leases: Api<Lease>, own: String, members: watch::Sender<Members>, stop: CancellationToken) {
    let selection = watcher::Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let mut seen: HashMap<String, (Option<MicroTime>, Instant)> = HashMap::new();
    let work = async {
        let mut events = std::pin::pin!(watcher(leases, selection));
        let mut listing: Vec<String> = Vec::new();
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let mut listed = false;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => listing.clear(),
                    Some(Ok(Event::InitApply(lease))) => {
                        listing.push(lease.name_any());
                        note(&mut seen, &lease);
                    }
                    Some(Ok(Event::InitDone)) => {
                        seen.retain(|name, _| listing.contains(name));
                        listed = true;
                    }
                    Some(Ok(Event::Apply(lease))) => note(&mut seen, &lease),
                    Some(Ok(Event::Delete(lease))) => {
                        seen.remove(&lease.name_any());
                    }
                    Some(Err(error)) => {
                        tracing::warn!(%error, "the watch of the replicas' Leases failed; it is started again");
                        // The others may renew without being seen.
                        for (_, at) in seen.values_mut() {
                            *at = Instant::now();
                        }
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    None => return,
                },
                _ = tick.tick() => {}
            }
            if !listed {
                continue;
            }
            let alive =
                seen.iter().filter(|(_, (_, at))| at.elapsed() < EXPIRY).map(|(name, _)| name.clone());
            let mut alive: Vec<String> = alive.chain([own.clone()]).collect();
            alive.sort();
            alive.dedup();
            members.send_if_modified(|members| {
                let changed = **members != *alive;
                if changed {
                    tracing::info!(members = alive.join(", "), "the replicas that share the bindings");
                    *members = alive.into();
                }
                changed
            });
        }
    };
    stop.run_until_cancelled(work).await;
}

fn note(seen: &mut HashMap<String, (Option<MicroTime>, Instant)>, lease: &Lease) {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    match seen.get_mut(&lease.name_any()) {
        Some((last, _)) if *last == renewed => {}
        Some(known) => *known = (renewed, Instant::now()),
        None => {
            seen.insert(lease.name_any(), (renewed, Instant::now()));
        }
    }
}
