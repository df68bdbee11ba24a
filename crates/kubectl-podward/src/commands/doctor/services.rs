//! Whether all services run, can be reached and are of one version, and whether somebody leads.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::finding::Finding;
use super::site::{PART_OF, Site};

/// The service that elects a leader, and its Lease.
const LEADER: &str = "lifecycle-controller";
/// The service that can be left out.
pub(super) const OPTIONAL: &str = "traffic-controller";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) async fn check(site: &Site) -> Result<Vec<Finding>> {
    let (client, namespace) = (&site.client, &site.namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let services =
        services.list(&ListParams::default().labels(PART_OF)).await.context("list the Services")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let slices = slices.list(&ListParams::default()).await.context("list the EndpointSlices")?.items;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(LEADER).await.with_context(|| format!("read the Lease {LEADER}"))?;
    let deployments: Vec<_> = site.deployments().await?.iter().map(Workload::from).collect();

    let expected = &site.manifests.services;
    let mut findings = workloads(expected, &deployments, namespace);
    let running = expected.iter().filter(|name| deployments.iter().any(|found| found.name == **name));
    for name in running {
        let is_there = services.items.iter().any(|service| service.name_any() == **name);
        findings.extend(endpoints(name, is_there.then(|| ready(&slices, name)), namespace));
    }
    findings.extend(versions(&deployments));
    findings.push(leader(lease.as_ref(), Timestamp::now(), namespace));
    Ok(findings)
}

/// What matters of a Deployment.
#[derive(Clone, Debug)]
struct Workload {
    name: String,
    wanted: i32,
    available: i32,
    image: String,
}

impl From<&Deployment> for Workload {
    fn from(found: &Deployment) -> Self {
        let name = found.name_any();
        let spec = found.spec.as_ref();
        let containers =
            spec.and_then(|spec| spec.template.spec.as_ref()).map(|pod| pod.containers.as_slice());
        let container = containers.unwrap_or_default().iter().find(|container| container.name == name);
        Self {
            wanted: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            available: found.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0),
            image: container.and_then(|container| container.image.clone()).unwrap_or_default(),
            name,
        }
    }
}

fn workloads(expected: &BTreeSet<String>, found: &[Workload], namespace: &str) -> Vec<Finding> {
    if found.is_empty() {
        return vec![Finding::failed(
            format!("no Deployment in namespace {namespace} has the label {PART_OF}"),
            "say where Podward is: --namespace",
        )];
    }
    let judge = |name: &String| {
        let Some(Workload { wanted, available, .. }) = found.iter().find(|found| found.name == *name) else {
            return if name == OPTIONAL {
                Finding::note(format!("{name} is not installed: nobody waits for Services to let go of pods"))
            } else {
                Finding::failed(
                    format!("there is no Deployment {name}"),
                    "helm upgrade installs what is missing",
                )
            };
        };
        let look = format!("kubectl -n {namespace} describe pods -l app.kubernetes.io/name={name}");
        match (*wanted, *available) {
            (0, _) => Finding::failed(
                format!("{name} is scaled to 0"),
                format!("kubectl -n {namespace} scale deployment {name} --replicas=2"),
            ),
            (wanted, available) if available <= 0 => {
                Finding::failed(format!("{name}: none of {wanted} replicas is available"), look)
            }
            (wanted, available) if available < wanted => Finding::warning(
                format!("{name}: {available} of {wanted} replicas are available"),
                format!("wait if it is being rolled out; otherwise {look}"),
            ),
            (wanted, _) => Finding::ok(format!("{name}: all of {wanted} replicas are available")),
        }
    };
    expected.iter().map(judge).collect()
}

/// Endpoints of `service` that take requests.
fn ready(slices: &[EndpointSlice], service: &str) -> usize {
    let of_service = |slice: &&EndpointSlice| {
        slice.labels().get("kubernetes.io/service-name").is_some_and(|name| name == service)
    };
    let endpoints = slices.iter().filter(of_service).flat_map(|slice| slice.endpoints.iter());
    // Nothing said of it means ready.
    endpoints
        .filter(|endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        })
        .map(|endpoint| endpoint.addresses.len())
        .sum()
}

/// `ready` is `None` without a Service.
fn endpoints(name: &str, ready: Option<usize>, namespace: &str) -> Option<Finding> {
    match ready {
        None => Some(Finding::failed(
            format!("there is no Service {name}"),
            "helm upgrade installs what is missing",
        )),
        Some(0) => Some(Finding::failed(
            format!("Service {name} has no ready endpoint: nobody reaches {name}"),
            format!(
                "kubectl -n {namespace} get pods -l app.kubernetes.io/name={name}; their readiness says what they wait for"
            ),
        )),
        Some(_) => None,
    }
}

/// The tag of an image, if it has one.
fn tag(image: &str) -> Option<&str> {
    let image = image.split('@').next().unwrap_or_default();
    // A port of the registry also comes after a colon.
    image.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag)
}

fn versions(found: &[Workload]) -> Option<Finding> {
    let tags: BTreeSet<&str> = found.iter().filter_map(|found| tag(&found.image)).collect();
    let each = || {
        let each = found
            .iter()
            .map(|found| format!("{} {}", found.name, tag(&found.image).unwrap_or("without a tag")));
        each.collect::<Vec<_>>().join(", ")
    };
    let untagged = found.iter().filter(|found| tag(&found.image).is_none()).count();
    match (tags.iter().next(), tags.len()) {
        (None, _) => (untagged > 0)
            .then(|| Finding::skipped("images are named by digest alone: their versions aren't compared")),
        (Some(_), 2..) => Some(Finding::warning(
            format!("services are of different versions: {}", each()),
            "helm upgrade brings them to one version; a service's own `image` value may be what holds one back",
        )),
        (Some(tag), _) if tag.trim_start_matches('v') != VERSION => Some(Finding::warning(
            format!("services are of version {tag}, and the doctor is of {VERSION}"),
            "use the doctor of the version that is installed: what it compares with is that of its own",
        )),
        (Some(tag), _) => Some(Finding::ok(format!("all services are of version {tag}, like the doctor"))),
    }
}

fn leader(lease: Option<&Lease>, now: Timestamp, namespace: &str) -> Finding {
    let look = format!("kubectl -n {namespace} logs deployment/{LEADER} says why nobody renews it");
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let Some((spec, holder)) = spec.zip(holder) else {
        return Finding::failed(format!("nobody holds the Lease {LEADER}: operations wait"), look);
    };
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let Some(renewed) = spec.renew_time.as_ref() else {
        return Finding::failed(format!("the Lease {LEADER} was never renewed: operations wait"), look);
    };
    let age = now.as_second() - renewed.0.as_second();
    if age > duration {
        return Finding::failed(
            format!("{holder} leads no more: it renewed the Lease {LEADER} {age} s ago, for {duration} s"),
            format!("{look}; if all is well there, the clock of this machine is wrong"),
        );
    }
    Finding::ok(format!("{holder} leads"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;

    fn workload(name: &str, wanted: i32, available: i32, tag: &str) -> Workload {
        Workload {
            name: name.to_owned(),
            wanted,
            available,
            image: format!("r.example:5000/podward/{name}{tag}"),
        }
    }

    #[test]
    fn replicas_that_are_away_are_told() {
        let expected: BTreeSet<String> = ["a", "b", "c", "d", "e", OPTIONAL].map(str::to_owned).into();
        let found = [("a", 2, 2), ("b", 2, 1), ("c", 2, 0), ("d", 0, 0)];
        let found = found.map(|(name, wanted, available)| workload(name, wanted, available, ""));
        let findings = workloads(&expected, &found, "ours");
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        use Level::{Failed, Note, Ok, Warning};
        assert_eq!(levels, [Ok, Warning, Failed, Failed, Failed, Note]);
        assert_eq!(findings[3].what, "d is scaled to 0");
        assert_eq!(findings[4].what, "there is no Deployment e");
        let nothing = workloads(&expected, &[], "ours");
        assert!(
            nothing.len() == 1 && nothing[0].next.as_ref().unwrap().contains("--namespace"),
            "{nothing:?}"
        );
    }

    #[test]
    fn services_need_an_endpoint_that_is_ready() {
        let slice = |service: &str, ready: Option<bool>| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}], "ports": null,
            }))
            .unwrap()
        };
        let slices = [slice("a", Some(false)), slice("b", Some(true)), slice("b", None)];
        assert_eq!((ready(&slices, "a"), ready(&slices, "b"), ready(&slices, "c")), (0, 2, 0));
        assert_eq!(endpoints("a", Some(0), "ours").unwrap().level, Level::Failed);
        assert_eq!(endpoints("a", None, "ours").unwrap().what, "there is no Service a");
        assert_eq!(endpoints("b", Some(2), "ours"), None);
    }

    #[test]
    fn versions_that_differ_are_told() {
        assert_eq!(tag("r.example:5000/podward/a:1.2"), Some("1.2"));
        assert_eq!(tag("r.example:5000/podward/a"), None);
        assert_eq!(tag("podward/a:1.2@sha256:00"), Some("1.2"));
        let judged = |tags: [&str; 2]| {
            versions(&[workload("a", 2, 2, tags[0]), workload("b", 2, 2, tags[1])]).unwrap()
        };
        let ours = format!(":{VERSION}");
        assert_eq!(judged([&ours, &ours]).level, Level::Ok);
        let two = judged([&ours, ":9.9.9"]);
        assert!(two.level == Level::Warning && two.what.contains("b 9.9.9"), "{two:?}");
        assert_eq!(judged([":9.9.9", ":9.9.9"]).level, Level::Warning);
        assert_eq!(judged(["@sha256:00", "@sha256:00"]).level, Level::Skipped);
    }

    #[test]
    fn somebody_has_to_lead() {
        let now: Timestamp = "2030-01-01T00:01:00Z".parse().unwrap();
        let judged = |spec: serde_json::Value| {
            let lease: Lease = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            leader(Some(&lease), now, "ours")
        };
        let at = |time: &str| json!({"holderIdentity": "x-1", "leaseDurationSeconds": 10, "renewTime": time});
        assert_eq!(judged(at("2030-01-01T00:00:51.000000Z")), Finding::ok("x-1 leads"));
        let late = judged(at("2030-01-01T00:00:30.000000Z"));
        assert!(late.level == Level::Failed && late.what.contains("30 s ago, for 10 s"), "{late:?}");
        assert_eq!(judged(json!({"holderIdentity": ""})).level, Level::Failed);
        assert_eq!(judged(json!({"holderIdentity": "x-1"})).level, Level::Failed);
        assert_eq!(leader(None, now, "ours").level, Level::Failed);
    }
}
