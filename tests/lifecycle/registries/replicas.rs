//! The Leases of the replicas.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use podward_e2e::{Fixture, Test};
use podward_support::{Installation, ServiceKind, WAIT, within};
use registry_servers::{ConsulServer, ConsulServerOptions};
use serde_json::json;

use super::bound::Bound;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("registry_bridge_may_write_only_its_leases", rights),
        Test::simulated_alone("registry_bindings_move_with_the_leases", moved),
    ]
}

const ACCOUNT: &str = "system:serviceaccount:podward-system:service-discovery-bridge";

async fn rights(fixture: Arc<Fixture>) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(fixture.client());
    for (verb, lease, allowed) in [
        ("patch", "service-discovery-bridge-0", true),
        ("patch", "service-discovery-bridge-15", true),
        ("patch", "service-discovery-bridge-16", false),
        ("patch", "lifecycle-controller", false),
        ("update", "service-discovery-bridge-0", false),
        ("delete", "service-discovery-bridge-0", false),
        ("delete", "lifecycle-controller", false),
        ("create", "service-discovery-bridge-0", true),
        ("create", "service-discovery-bridge-16", false),
        ("create", "lifecycle-controller", false),
        ("create", "", false),
    ] {
        let review = serde_json::from_value(json!({"spec": {
            "user": ACCOUNT,
            "resourceAttributes": {
                "group": "coordination.k8s.io", "resource": "leases", "namespace": Installation::NAMESPACE,
                "verb": verb, "name": lease,
            },
        }}))?;
        let answer = reviews.create(&PostParams::default(), &review).await.context("ask for a right")?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);
        ensure!(is_allowed == allowed, "{verb} Lease {lease:?}: allowed is {is_allowed}");
    }
    Ok(())
}

/// Returns the holders of the Leases.
async fn holders(fixture: &Fixture) -> Result<Vec<String>> {
    let leases: Api<Lease> = Api::namespaced(fixture.client(), Installation::NAMESPACE);
    let of_bridge = ListParams::default().labels("podward.io/member-of=service-discovery-bridge");
    let listed = leases.list(&of_bridge).await.context("list the Leases")?;
    let holders = listed.items.into_iter().filter_map(|lease| lease.spec?.holder_identity);
    Ok(holders.collect())
}

/// A replica that stops gives its Lease back, and the other one takes over at once. One that is killed loses its bindings
/// within 15 s. One that comes back has one Lease again.
async fn moved(fixture: Arc<Fixture>) -> Result<()> {
    let bridges = fixture.podward()?.services(ServiceKind::ServiceDiscoveryBridge);
    let names: BTreeSet<String> = bridges.iter().map(|bridge| bridge.name()).collect();
    let all_hold = || async {
        loop {
            let mut found = holders(&fixture).await?;
            found.sort();
            if found.iter().eq(names.iter()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within(WAIT, || format!("each of {names:?} to hold one Lease"), all_hold()).await?;
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let bound = Bound::new(fixture.clone(), "Consul", vec![server.url()], json!({})).await?;
    for (kills, limit) in [(false, Duration::from_secs(5)), (true, Duration::from_secs(15))] {
        let keeper = replica(&bound).await?;
        let bridge = bridges.iter().find(|bridge| bridge.name() == keeper);
        let bridge = bridge.with_context(|| format!("no replica is called {keeper}"))?;
        let begin = std::time::Instant::now();
        match kills {
            true => bridge.kill().await?,
            false => drop(bridge.stop().await?),
        }
        let taken = async {
            while replica(&bound).await? == keeper {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        within(WAIT, || "the other replica to keep the binding".to_owned(), taken).await?;
        let took = begin.elapsed();
        eprintln!(
            "the other replica keeps the binding {took:?} after {}",
            if kills { "a kill" } else { "a stop" }
        );
        ensure!(took < limit, "the other replica took {took:?}");
        bridge.start().await?;
        within(WAIT, || format!("each of {names:?} to hold one Lease"), all_hold()).await?;
    }
    bound.end().await
}

/// Returns the replica that keeps the binding, by its status.
async fn replica(bound: &Bound) -> Result<String> {
    let binding = bound.api().get("web").await.context("read the binding")?;
    let name = binding.name_any();
    binding.status.and_then(|status| status.replica).with_context(|| format!("{name} has no replica"))
}
