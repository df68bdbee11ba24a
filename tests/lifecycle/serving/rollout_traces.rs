//! The traces of rollouts, as a collector of the OpenTelemetry protocol receives them from all services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, DELETE_OPERATION};
use podward_e2e::{Collected, Fixture, Test};
use podward_support::demo::{Act, CPU_REQUEST, DemoServer, DemoWorkload, REPLICAS};
use podward_support::{PodFeed, WAIT, within};
use serde_json::json;

use super::bound_service::bind_to_consul;
use super::service_fixture::{of_app, serve};
use crate::clonesets::made::MadeSet;

/// The spans of the phases of an operation.
const PHASES: [&str; 6] =
    ["PreChecking", "Preparing", "Operating", "WaitingForOthers", "PostChecking", "Completing"];

const POLL: Duration = Duration::from_millis(300);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::serving("traces_of_a_rolling_update", rolling_update),
        Test::serving("traces_of_an_update_in_place", update_in_place),
    ]
}

/// The pods of a Deployment are replaced: each old pod has the trace of its deletion.
async fn rolling_update(fixture: Arc<Fixture>) -> Result<()> {
    let _registry = bind_to_consul(&fixture, "web").await?;
    let workload = DemoWorkload {
        namespace: fixture.namespace().to_owned(),
        image: fixture.images().v1.clone(),
        server: DemoServer::ExitsAtOnce,
        opted_in: true,
        strategy: None,
        two_pods_on: None,
        removal_wait: Duration::ZERO,
        cpu_request: CPU_REQUEST,
        feed: PodFeed::start(fixture.client(), fixture.namespace(), "app=web").await?,
    };
    workload.create().await?;
    let old = workload.until_in_service(REPLICAS).await?;
    Act::RollingUpdate.perform(&workload, &fixture.images().v2).await?;
    // The mutating-webhook has no part in a delete: it reviews creations and updates, and the lifecycle-controller writes
    // all steps of this operation itself. The cluster has no CloneSet.
    let services =
        ["lifecycle-controller", "service-discovery-bridge", "traffic-controller", "validating-webhook"];
    for pod in old {
        let spans = of_pod(&fixture, &pod.uid().unwrap_or_default(), &services, &[]).await?;
        check_traces(&spans, DELETE_OPERATION, "PodGone")?;
        check_reviews(&spans)?;
    }
    survives_the_pods(&fixture).await
}

/// Waits until the operations of the old pods are in the history of the Deployment.
async fn survives_the_pods(fixture: &Fixture) -> Result<()> {
    let mut last = String::new();
    let told = async {
        loop {
            let said = fixture.plugin(&["trace", "deploy/web", "--id=pod-delete"]).await?.said;
            if said.matches(": pod-delete (delete): PodGone after ").count() == REPLICAS {
                return Ok(said);
            }
            last = said;
            tokio::time::sleep(POLL).await;
        }
    };
    let told = within(WAIT, || "the operations of deleted pods in `trace deploy/web`".to_owned(), told).await;
    let said = told.with_context(|| format!("the last answer was: {last}"))?;
    ensure!(said.contains("  Operating ") && said.contains("  evidence: "), "{said}");
    Ok(())
}

/// The pods of a CloneSet are updated in place: each has the trace of its update, and takes part in that of the rollout.
async fn update_in_place(fixture: Arc<Fixture>) -> Result<()> {
    let _registry = bind_to_consul(&fixture, "web").await?;
    serve(&fixture, "web", of_app("web")).await?;
    let set = MadeSet::create(&fixture, json!({CONTROL_LABEL: CONTROL_VALUE}), json!({})).await?;
    set.until_done(2).await?;
    let before = fixture.feed().all();
    set.update(&fixture.images().v2).await?;
    set.until_done(2).await?;
    let services = [
        "cloneset-controller",
        "lifecycle-controller",
        "mutating-webhook",
        "service-discovery-bridge",
        "traffic-controller",
    ];
    let mut rollouts = BTreeSet::new();
    for pod in before {
        let spans = of_pod(&fixture, &pod.uid().unwrap_or_default(), &services, &["Updating"]).await?;
        let (states, spans): (Vec<_>, Vec<_>) =
            spans.into_iter().partition(|span| span.service == "cloneset-controller");
        let id = spans.iter().map(|span| span.attribute("podward.operation.id")).find(|id| !id.is_empty());
        check_traces(&spans, id.unwrap_or_default(), "Completed")?;
        let root = root(&spans)?;
        let links = states.iter().flat_map(|state| &state.span.links);
        ensure!(
            links.into_iter().any(|link| link.span_id == root.span.span_id),
            "no state of the rollout has a link to the operation: {states:#?}"
        );
        let updates = states.iter().filter(|state| state.span.name == "Updating");
        rollouts.extend(updates.map(|state| state.span.trace_id.clone()));
    }
    ensure!(rollouts.len() == 1, "one trace of the rollout, not {}", rollouts.len());
    Ok(())
}

/// Waits until all spans about the pod have come, from all `services`, and those with these `names`: a service sends its spans
/// one after the other. The calls of a leader that ended during the operation may be missing, but not the answers to them.
async fn of_pod(fixture: &Fixture, uid: &str, services: &[&str], names: &[&str]) -> Result<Vec<Collected>> {
    let is_whole = |spans: &[Collected]| {
        let from: BTreeSet<&str> = spans.iter().map(|span| span.service.as_str()).collect();
        let has = |name: &&str| spans.iter().any(|span| span.span.name == *name);
        root(spans).is_ok_and(|root| orphans(spans).iter().all(|name| is_lost_with_leader(root, name)))
            && services.iter().all(|name| from.contains(name))
            && names.iter().all(has)
    };
    let found = within(
        WAIT,
        || format!("the spans of the pod {uid}"),
        fixture.collector()?.until_of_pod(uid, is_whole),
    );
    match found.await {
        Ok(spans) => Ok(spans),
        Err(error) => {
            let spans = fixture.collector()?.until_of_pod(uid, |_| true).await?;
            let names: Vec<_> = spans.iter().map(|span| (&span.service, &span.span.name)).collect();
            Err(error.context(format!("it has {names:?}, of which orphans are {:?}", orphans(&spans))))
        }
    }
}

/// Checks that the operation has one trace with one root, and that its phases follow each other without gaps. The root begins
/// with the first of them, or with a later one, if the controller became the leader in that phase.
fn check_traces(spans: &[Collected], id: &str, outcome: &str) -> Result<()> {
    let traces: BTreeSet<&[u8]> = spans.iter().map(|span| span.span.trace_id.as_slice()).collect();
    ensure!(traces.len() == 1, "one trace, not {}: {}", traces.len(), lines(spans));
    let root = root(spans)?;
    ensure!(root.attribute("podward.operation.id") == id, "not the operation {id}: {root:#?}");
    ensure!(root.attribute("podward.operation.outcome") == outcome, "{root:#?}");
    let phases = phases(spans);
    for ((_, phase), (start, next)) in phases.iter().zip(phases.iter().skip(1)) {
        ensure!(phase.span.end_time_unix_nano == *start, "a gap before {}: {}", next.span.name, lines(spans));
    }
    let end = phases.values().next_back().map(|last| last.span.end_time_unix_nano);
    ensure!(
        phases.len() >= 3 && end == Some(root.span.end_time_unix_nano),
        "a gap before the end: {}",
        lines(spans)
    );
    let first = phases.get(&root.span.start_time_unix_nano).map(|first| first.span.name.as_str());
    ensure!(
        first == Some(root.attribute("podward.operation.first_phase")),
        "the root does not begin with its first phase: {}",
        lines(spans)
    );
    Ok(())
}

/// Returns the phases of operations by the times at which they began.
fn phases(spans: &[Collected]) -> BTreeMap<u64, &Collected> {
    let phases = spans.iter().filter(|span| PHASES.contains(&span.span.name.as_str()));
    phases.map(|phase| (phase.span.start_time_unix_nano, phase)).collect()
}

/// Checks that the held deletes are children of the root, and that one of them began the operation.
fn check_reviews(spans: &[Collected]) -> Result<()> {
    let root = &root(spans)?.span;
    let (began, _) = phases(spans).pop_first().context("the operation has no phase")?;
    let reviews: Vec<_> = spans.iter().filter(|span| span.service == "validating-webhook").collect();
    for review in &reviews {
        let is_child = review.span.parent_span_id == root.span_id && review.span.name == "admission /delete";
        ensure!(is_child && review.attribute("podward.operation.id") == DELETE_OPERATION, "{review:#?}");
    }
    let covers = |review: &&Collected| {
        (review.span.start_time_unix_nano..=review.span.end_time_unix_nano).contains(&began)
    };
    ensure!(reviews.iter().any(covers), "the operation began in no review: {}", lines(spans));
    Ok(())
}

/// Returns the spans, a line each, in the order of their arrival.
fn lines(spans: &[Collected]) -> String {
    let line = |it: &Collected| {
        let span = &it.span;
        format!(
            "\n{} to {}: {} of {}",
            span.start_time_unix_nano, span.end_time_unix_nano, span.name, it.service
        )
    };
    spans.iter().map(line).collect()
}

/// Returns the only root of operations.
fn root(spans: &[Collected]) -> Result<&Collected> {
    let roots: Vec<_> = spans.iter().filter(|span| span.span.name.starts_with("operation ")).collect();
    let [root] = roots[..] else { anyhow::bail!("not one root: {roots:#?}") };
    Ok(root)
}

/// True if the orphan `name` is the answer to a call of another controller that led when the operation began. A busy machine
/// is enough for a change of leader: the test cluster's Lease is short.
fn is_lost_with_leader(root: &Collected, name: &str) -> bool {
    root.attribute("podward.operation.first_phase") != PHASES[0] && name.starts_with("answer ")
}

/// Returns the names of the spans whose parents did not come.
fn orphans(spans: &[Collected]) -> Vec<&str> {
    let ids: BTreeSet<&[u8]> = spans.iter().map(|span| span.span.span_id.as_slice()).collect();
    let is_orphan = |span: &&Collected| {
        let parent = span.span.parent_span_id.as_slice();
        !parent.is_empty() && !ids.contains(parent)
    };
    spans.iter().filter(is_orphan).map(|span| span.span.name.as_str()).collect()
}
