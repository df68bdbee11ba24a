//! What is wrong with one DiscoveryBinding, by its spec and its status.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use podward_api::DiscoveryBinding;
use podward_api::discovery_binding::RELEASE_REMOVALS_ANNOTATION;

use super::super::finding::Finding;
use super::bridge::BRIDGE;

/// A binding may be without a status, or being deleted, for this time.
const PATIENCE_SECONDS: i64 = 30;

/// What the findings about a binding depend on, beside itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct BindingFacts<'a> {
    /// The names of the ClusterRegistries. `None` if they could not be listed.
    pub(in crate::commands) registries: Option<&'a BTreeSet<String>>,
    /// The replicas of the bridge that hold a Lease. `None` if they could not be listed.
    pub(in crate::commands) holders: Option<&'a BTreeSet<String>>,
    pub(in crate::commands) now: Timestamp,
}

/// Returns the findings about a binding. There are none if it is as it should be.
pub(in crate::commands) fn findings(binding: &DiscoveryBinding, about: &BindingFacts<'_>) -> Vec<Finding> {
    let (namespace, name) = (binding.namespace().unwrap_or_default(), binding.name_any());
    let this = format!("DiscoveryBinding {namespace}/{name}");
    let edit = format!("kubectl -n {namespace} edit discoverybinding {name}");
    let look = format!("kubectl -n {namespace} describe discoverybinding {name}");
    let age = |time: &Time| about.now.as_second() - time.0.as_second();
    let mut findings = Vec::new();
    if let Some(deleted) = &binding.metadata.deletion_timestamp
        && age(deleted) > PATIENCE_SECONDS
    {
        let why = problem(binding).map(|why| format!(": {why}")).unwrap_or_default();
        findings.push(Finding::failed(
            format!(
                "{this} was deleted {} s ago, and waits until its registry shows none of its instances{why}",
                age(deleted)
            ),
            format!(
                "{look}; make the registry answer. If it is gone for good: kubectl -n {namespace} patch discoverybinding \
                 {name} --type=merge --patch '{{\"metadata\": {{\"finalizers\": null}}}}'; instances then stay registered"
            ),
        ));
    }
    if let Some(wanted) = &binding.spec.registry.cluster_registry
        && about.registries.is_some_and(|registries| !registries.contains(wanted))
    {
        findings.push(Finding::failed(
            format!("{this} names ClusterRegistry {wanted}, which does not exist: pods wait"),
            format!("create it, or correct spec.registry.clusterRegistry: {edit}"),
        ));
        return findings;
    }
    let status = binding.status.clone().unwrap_or_default();
    let is_new = binding.metadata.creation_timestamp.as_ref().is_some_and(|at| age(at) <= PATIENCE_SECONDS);
    if status.conditions.is_empty() {
        if !is_new {
            findings.push(Finding::failed(
                format!(
                    "no replica of the {BRIDGE} has looked at {this}: pods that it selects wait for nobody"
                ),
                format!("check the {BRIDGE}, and its log"),
            ));
        }
        return findings;
    }
    let false_ = |kind: &str| {
        let condition = status.conditions.iter().find(|condition| condition.type_ == kind)?;
        (condition.status == "False").then(|| said(condition, about.now))
    };
    if let Some(said) = false_("Accepted") {
        findings.push(Finding::failed(format!("{this} is not accepted{said}: pods wait"), edit));
        return findings;
    }
    let mut is_explained = binding.metadata.deletion_timestamp.is_some();
    if let Some(said) = false_("Reachable") {
        is_explained = true;
        findings.push(Finding::failed(
            format!("an address of the registry of {this} does not answer{said}: removals wait"),
            format!("{look}; docs/runbooks/PodwardRegistryUnreachable.md"),
        ));
    }
    if let Some(said) = false_("Attached").filter(|_| binding.metadata.deletion_timestamp.is_none()) {
        is_explained = true;
        findings.push(Finding::failed(
            format!("the hook of {this} is not attached{said}: pods wait"),
            format!("check that the lifecycle-controller runs, and that the {BRIDGE} reaches its gRPC port; {look}"),
        ));
    }
    if let Some(held) = &status.held_removals {
        is_explained = true;
        let since = held.since.as_ref().map(|at| format!(" since {} s", age(at))).unwrap_or_default();
        let next = match binding.annotations().get(RELEASE_REMOVALS_ANNOTATION) == Some(&held.id) {
            true => format!("they were released: {look}"),
            false => format!(
                "look whether these pods are gone on purpose; then: kubectl podward release -n {namespace} \
                 discoverybinding/{name}"
            ),
        };
        let what = format!("{this} holds {} removals{since}: {}", held.count, held.reason);
        findings.push(Finding::warning(what, next));
    }
    if let Some(said) = false_("Synchronized").filter(|_| !is_explained) {
        findings.push(Finding::warning(
            format!("the registry does not show what {this} wants{said}"),
            format!("{look}; docs/runbooks/PodwardRegistryDiffers.md"),
        ));
    }
    if let (Some(holders), Some(replica)) = (about.holders, &status.replica)
        && !holders.contains(replica)
    {
        findings.push(Finding::warning(
            format!("{this} was kept by replica {replica}, which holds no Lease any more; no other one has written its status"),
            format!("wait for 15 s; otherwise check the {BRIDGE}, and its log"),
        ));
    }
    findings
}

/// Returns why a binding is not as it should be, by its conditions.
fn problem(binding: &DiscoveryBinding) -> Option<String> {
    let conditions = binding.status.as_ref()?.conditions.iter();
    conditions.filter(|condition| condition.status == "False").map(|it| it.message.clone()).next()
}

fn said(condition: &Condition, now: Timestamp) -> String {
    let age = now.as_second() - condition.last_transition_time.0.as_second();
    format!(" since {age} s ({})", condition.message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::finding::FindingLevel;
    use super::*;

    fn binding(metadata: Value, spec: Value, status: Value) -> DiscoveryBinding {
        let mut object = json!({
            "apiVersion": "podward.io/v1alpha1", "kind": "DiscoveryBinding",
            "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T10:00:00Z"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "registry": {"clusterRegistry": "corp"},
                "service": {"name": "web"}, "port": 80,
            },
            "status": status,
        });
        for (part, change) in [("metadata", metadata), ("spec", spec)] {
            object[part].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        }
        serde_json::from_value(object).unwrap()
    }

    fn conditions(falses: &[(&str, &str)]) -> Value {
        let of = |kind: &str| {
            let found = falses.iter().find(|(of, _)| *of == kind);
            json!({
                "type": kind, "status": if found.is_some() { "False" } else { "True" }, "reason": "X",
                "message": found.map(|(_, message)| *message).unwrap_or_default(),
                "lastTransitionTime": "2026-01-01T10:01:00Z",
            })
        };
        json!(["Accepted", "Reachable", "Attached", "Synchronized"].map(of))
    }

    fn found(binding: &DiscoveryBinding) -> Vec<(FindingLevel, String, String)> {
        let registries = BTreeSet::from(["corp".to_owned()]);
        let holders = BTreeSet::from(["bridge-a".to_owned()]);
        let about = BindingFacts {
            registries: Some(&registries),
            holders: Some(&holders),
            now: "2026-01-01T10:02:00Z".parse().unwrap(),
        };
        let found = findings(binding, &about).into_iter();
        found.map(|finding| (finding.level, finding.what, finding.next.unwrap_or_default())).collect()
    }

    #[test]
    fn a_binding_that_is_as_it_should_be_has_no_finding() {
        let status = json!({"conditions": conditions(&[]), "replica": "bridge-a"});
        assert_eq!(found(&binding(json!({}), json!({}), status)), []);
        // It was just created.
        let new = json!({"creationTimestamp": "2026-01-01T10:01:50Z"});
        assert_eq!(found(&binding(new, json!({}), json!({}))), []);
    }

    #[test]
    fn every_problem_has_its_next_step() {
        let (warning, failed) = (FindingLevel::Warning, FindingLevel::Failed);
        let down = ("Reachable", "http://c:8500: connection refused");
        let differs = ("Synchronized", "2 of 3 instances are present");
        for (metadata, spec, falses, level, what, next) in [
            (
                json!({}),
                json!({"registry": {"clusterRegistry": "old"}}),
                vec![],
                failed,
                "names ClusterRegistry old, which does not exist",
                "create it, or correct",
            ),
            (
                json!({}),
                json!({}),
                vec![("Accepted", "spec.port is wrong"), differs],
                failed,
                "is not accepted since 60 s (spec.port is wrong)",
                "kubectl -n shop edit discoverybinding web",
            ),
            (
                json!({}),
                json!({}),
                vec![down, differs],
                failed,
                "does not answer since 60 s (http://c:8500: connection refused)",
                "kubectl -n shop describe discoverybinding web",
            ),
            (
                json!({}),
                json!({}),
                vec![("Attached", "no leader"), differs],
                failed,
                "is not attached since 60 s (no leader)",
                "check that the lifecycle-controller runs",
            ),
            (
                json!({}),
                json!({}),
                vec![differs],
                warning,
                "does not show what DiscoveryBinding shop/web wants since 60 s (2 of 3",
                "PodwardRegistryDiffers",
            ),
        ] {
            let status = json!({"conditions": conditions(&falses), "replica": "bridge-a"});
            let found = found(&binding(metadata, spec, status));
            let [(of, says, step)] = found.as_slice() else { panic!("{found:?}") };
            assert!(*of == level && says.contains(what) && step.contains(next), "{found:?}");
        }
    }

    #[test]
    fn a_deleted_binding_that_waits_says_for_what() {
        let metadata = json!({"deletionTimestamp": "2026-01-01T10:01:00Z", "finalizers": ["podward.io/discovery-binding"]});
        let falses = [("Reachable", "no route"), ("Attached", "ended")];
        let status = json!({"conditions": conditions(&falses), "replica": "bridge-a"});
        let found = found(&binding(metadata, json!({}), status));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].1.contains("was deleted 60 s ago") && found[0].1.ends_with(": no route"),
            "{found:?}"
        );
        assert!(found[0].2.contains("\"finalizers\": null"), "{found:?}");
    }

    #[test]
    fn held_removals_and_lost_replicas_are_warnings() {
        let held = json!({"id": "abc", "count": 4, "reason": "nobody saw them end", "since": "2026-01-01T10:01:00Z"});
        let status = json!({
            "conditions": conditions(&[("Synchronized", "held")]), "replica": "bridge-b", "heldRemovals": held,
        });
        let held = found(&binding(json!({}), json!({}), status.clone()));
        assert!(
            held.iter().all(|(level, ..)| *level == FindingLevel::Warning) && held.len() == 2,
            "{held:?}"
        );
        assert!(held[0].1.ends_with("holds 4 removals since 60 s: nobody saw them end"), "{held:?}");
        assert!(held[0].2.ends_with("kubectl podward release -n shop discoverybinding/web"), "{held:?}");
        assert!(held[1].1.contains("bridge-b, which holds no Lease"), "{held:?}");
        let released = json!({"annotations": {"podward.io/release-removals": "abc"}});
        assert!(found(&binding(released, json!({}), status))[0].2.starts_with("they were released"));
    }

    #[test]
    fn a_binding_that_nobody_looks_at_has_failed() {
        let found = found(&binding(json!({}), json!({}), json!({})));
        assert!(found[0].1.contains("no replica of the service-discovery-bridge has looked at"), "{found:?}");
    }
}
