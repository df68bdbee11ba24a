//! Checks that all services run, have ready endpoints and the same version, and that there is a leader.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::bindings::BRIDGE;
use super::finding::Finding;
use super::target::{DoctorTarget, PART_OF};

/// The service that elects a leader. Its Lease has the same name.
const LEADER: &str = "lifecycle-controller";
/// The optional service.
pub(super) const OPTIONAL: &str = "traffic-controller";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let (client, namespace) = (&target.client, &target.namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let services =
        services.list(&ListParams::default().labels(PART_OF)).await.context("list the Services")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let slices = slices.list(&ListParams::default()).await.context("list the EndpointSlices")?.items;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(LEADER).await.with_context(|| format!("read the Lease {LEADER}"))?;
    let deployments: Vec<_> = target.deployments().await?.iter().map(ServiceDeployment::from).collect();

    let expected = &target.manifests.services;
    let mut findings = workloads(expected, &deployments, namespace);
    for name in deployments.iter().map(|found| &found.name).filter(|name| *name != BRIDGE) {
        let is_there = services.items.iter().any(|service| service.name_any() == *name);
        if is_there || expected.contains(name) {
            findings.extend(endpoints(name, is_there.then(|| ready(&slices, name)), namespace));
        }
    }
    findings.extend(versions(&deployments));
    findings.push(leader(lease.as_ref(), Timestamp::now(), namespace));
    Ok(findings)
}

/// The fields of a Deployment that are checked.
#[derive(Clone, Debug)]
struct ServiceDeployment {
    name: String,
    wanted: i32,
    available: i32,
    image: String,
}

impl From<&Deployment> for ServiceDeployment {
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

/// Judges the Deployments that were found, and names those that are missing. The [`BRIDGE`] is judged with its
/// DiscoveryBindings.
fn workloads(expected: &BTreeSet<String>, found: &[ServiceDeployment], namespace: &str) -> Vec<Finding> {
    if found.is_empty() {
        return vec![Finding::failed(
            format!("no Deployment in namespace {namespace} has the label {PART_OF}"),
            "set --namespace to Podward's namespace",
        )];
    }
    let judge = |name: &String| {
        let Some(ServiceDeployment { wanted, available, .. }) =
            found.iter().find(|found| found.name == *name)
        else {
            return if name == OPTIONAL {
                Finding::note(format!("{name} is not installed: pods are not drained from Services"))
            } else {
                Finding::failed(format!("there is no Deployment {name}"), "run helm upgrade to install it")
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
                format!("wait if a rollout is in progress; otherwise: {look}"),
            ),
            (wanted, _) => Finding::ok(format!("{name}: all of {wanted} replicas are available")),
        }
    };
    let names: BTreeSet<&String> = expected.iter().chain(found.iter().map(|found| &found.name)).collect();
    names.into_iter().filter(|name| *name != BRIDGE).map(judge).collect()
}

/// Returns the number of ready endpoints of `service`.
fn ready(slices: &[EndpointSlice], service: &str) -> usize {
    let of_service = |slice: &&EndpointSlice| {
        slice.labels().get("kubernetes.io/service-name").is_some_and(|name| name == service)
    };
    let endpoints = slices.iter().filter(of_service).flat_map(|slice| slice.endpoints.iter());
    // A missing condition means ready.
    endpoints
        .filter(|endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        })
        .map(|endpoint| endpoint.addresses.len())
        .sum()
}

/// `ready` is the number of ready endpoints, or `None` if there is no Service.
fn endpoints(name: &str, ready: Option<usize>, namespace: &str) -> Option<Finding> {
    match ready {
        None => {
            Some(Finding::failed(format!("there is no Service {name}"), "run helm upgrade to install it"))
        }
        Some(0) => Some(Finding::failed(
            format!("Service {name} has no ready endpoint: {name} cannot be called"),
            format!(
                "kubectl -n {namespace} get pods -l app.kubernetes.io/name={name}; their conditions say \
                 what they wait for"
            ),
        )),
        Some(_) => None,
    }
}

/// Returns the tag of an image, or `None` if it has none.
fn tag(image: &str) -> Option<&str> {
    let image = image.split('@').next().unwrap_or_default();
    // The port of a registry also follows a colon.
    image.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag)
}

fn versions(found: &[ServiceDeployment]) -> Option<Finding> {
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
            .then(|| Finding::skipped("images have no tags, only digests: their versions are not compared")),
        (Some(_), 2..) => Some(Finding::warning(
            format!("services have different versions: {}", each()),
            "run helm upgrade; the value `image` of a service can pin it to another version",
        )),
        (Some(tag), _) if tag.trim_start_matches('v') != VERSION => Some(Finding::warning(
            format!("services have version {tag}, the doctor has version {VERSION}"),
            "use the doctor of the installed version: it compares with the manifests of its own version",
        )),
        (Some(tag), _) => Some(Finding::ok(format!("all services and the doctor have version {tag}"))),
    }
}

fn leader(lease: Option<&Lease>, now: Timestamp, namespace: &str) -> Finding {
    let look =
        format!("kubectl -n {namespace} logs deployment/{LEADER} says why no replica renews the Lease");
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let Some((spec, holder)) = spec.zip(holder) else {
        return Finding::failed(format!("no replica holds the Lease {LEADER}: operations wait"), look);
    };
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let Some(renewed) = spec.renew_time.as_ref() else {
        return Finding::failed(format!("the Lease {LEADER} was never renewed: operations wait"), look);
    };
    let age = now.as_second() - renewed.0.as_second();
    if age > duration {
        return Finding::failed(
            format!(
                "{holder} is no longer the leader: it renewed the Lease {LEADER} {age} s ago, for {duration} s"
            ),
            format!("{look}; if there is no error, the clock of this machine is wrong"),
        );
    }
    Finding::ok(format!("{holder} is the leader"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingLevel;
    use super::*;

    fn workload(name: &str, wanted: i32, available: i32, tag: &str) -> ServiceDeployment {
        ServiceDeployment {
            name: name.to_owned(),
            wanted,
            available,
            image: format!("r.example:5000/podward/{name}{tag}"),
        }
    }

    #[test]
    fn missing_replicas_are_reported() {
        let expected: BTreeSet<String> = ["a", "b", "c", "d", "e", OPTIONAL].map(str::to_owned).into();
        let found = [("a", 2, 2), ("b", 2, 1), ("c", 2, 0), ("d", 0, 0)];
        let found = found.map(|(name, wanted, available)| workload(name, wanted, available, ""));
        let findings = workloads(&expected, &found, "ours");
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        use FindingLevel::{Failed, Note, Ok, Warning};
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
    fn services_that_are_not_installed_by_default_are_judged_where_they_are_installed() {
        let expected: BTreeSet<String> = ["a".to_owned()].into();
        let down =
            [workload("a", 2, 2, ""), workload("cloneset-controller", 2, 0, ""), workload(BRIDGE, 2, 0, "")];
        let findings = workloads(&expected, &down, "ours");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!(findings[1].what, "cloneset-controller: none of 2 replicas is available");
        assert_eq!(findings[1].level, FindingLevel::Failed);
        let without = workloads(&expected, &down[..1], "ours");
        assert_eq!(without, [Finding::ok("a: all of 2 replicas are available")]);
    }

    #[test]
    fn services_need_a_ready_endpoint() {
        let slice = |service: &str, ready: Option<bool>| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}], "ports": null,
            }))
            .unwrap()
        };
        let slices = [slice("a", Some(false)), slice("b", Some(true)), slice("b", None)];
        assert_eq!((ready(&slices, "a"), ready(&slices, "b"), ready(&slices, "c")), (0, 2, 0));
        assert_eq!(endpoints("a", Some(0), "ours").unwrap().level, FindingLevel::Failed);
        assert_eq!(endpoints("a", None, "ours").unwrap().what, "there is no Service a");
        assert_eq!(endpoints("b", Some(2), "ours"), None);
    }

    #[test]
    fn different_versions_are_reported() {
        assert_eq!(tag("r.example:5000/podward/a:1.2"), Some("1.2"));
        assert_eq!(tag("r.example:5000/podward/a"), None);
        assert_eq!(tag("podward/a:1.2@sha256:00"), Some("1.2"));
        let judged = |tags: [&str; 2]| {
            versions(&[workload("a", 2, 2, tags[0]), workload("b", 2, 2, tags[1])]).unwrap()
        };
        let ours = format!(":{VERSION}");
        assert_eq!(judged([&ours, &ours]).level, FindingLevel::Ok);
        let two = judged([&ours, ":9.9.9"]);
        assert!(two.level == FindingLevel::Warning && two.what.contains("b 9.9.9"), "{two:?}");
        assert_eq!(judged([":9.9.9", ":9.9.9"]).level, FindingLevel::Warning);
        assert_eq!(judged(["@sha256:00", "@sha256:00"]).level, FindingLevel::Skipped);
    }

    #[test]
    fn a_replica_must_be_the_leader() {
        let now: Timestamp = "2030-01-01T00:01:00Z".parse().unwrap();
        let judged = |spec: serde_json::Value| {
            let lease: Lease = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            leader(Some(&lease), now, "ours")
        };
        let at = |time: &str| json!({"holderIdentity": "x-1", "leaseDurationSeconds": 10, "renewTime": time});
        assert_eq!(judged(at("2030-01-01T00:00:51.000000Z")), Finding::ok("x-1 is the leader"));
        let late = judged(at("2030-01-01T00:00:30.000000Z"));
        assert!(late.level == FindingLevel::Failed && late.what.contains("30 s ago, for 10 s"), "{late:?}");
        assert_eq!(judged(json!({"holderIdentity": ""})).level, FindingLevel::Failed);
        assert_eq!(judged(json!({"holderIdentity": "x-1"})).level, FindingLevel::Failed);
        assert_eq!(leader(None, now, "ours").level, FindingLevel::Failed);
    }
}
