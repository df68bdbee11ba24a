//! Checks that NetworkPolicies restrict who can connect to the services.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::finding::Finding;
use super::target::DoctorTarget;

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let api: Api<NetworkPolicy> = Api::namespaced(target.client.clone(), &target.namespace);
    let policies = api.list(&ListParams::default()).await;
    let policies = policies.with_context(|| format!("list NetworkPolicies in {}", target.namespace))?.items;
    let services: Vec<ServicePods> = target.deployments().await?.iter().map(ServicePods::from).collect();
    Ok(judge(&services, &policies))
}

/// The pods of a service.
#[derive(Clone, Debug)]
struct ServicePods {
    service: String,
    labels: BTreeMap<String, String>,
}

impl From<&Deployment> for ServicePods {
    fn from(found: &Deployment) -> Self {
        let metadata = found.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let labels = metadata.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
        Self { service: found.name_any(), labels }
    }
}

/// Returns the specs of the policies that restrict connections to pods with `labels`.
fn restricting<'p>(
    labels: &'p BTreeMap<String, String>,
    policies: &'p [NetworkPolicy],
) -> impl Iterator<Item = &'p NetworkPolicySpec> {
    let selects = |spec: &&NetworkPolicySpec| match &spec.pod_selector {
        // The API server rejects selectors that cannot be compiled, and some that match nothing.
        Some(selector) => {
            podward_api::compile_selector(selector).is_ok_and(|selector| selector.matches(labels))
        }
        None => true,
    };
    let is_for_ingress = |spec: &&NetworkPolicySpec| {
        // The API server sets the types. Without them, a policy is for ingress.
        spec.policy_types.as_ref().is_none_or(|types| types.iter().any(|kind| kind == "Ingress"))
    };
    policies
        .iter()
        .filter_map(|policy| policy.spec.as_ref())
        .filter(move |spec| selects(spec) && is_for_ingress(spec))
}

/// Returns whether a policy admits every peer on some port.
fn admits_everyone(spec: &NetworkPolicySpec) -> bool {
    spec.ingress.iter().flatten().any(|rule| rule.from.as_ref().is_none_or(Vec::is_empty))
}

fn judge(services: &[ServicePods], policies: &[NetworkPolicy]) -> Vec<Finding> {
    let (mut unrestricted, mut open, mut restricted) = (Vec::new(), Vec::new(), Vec::new());
    for ServicePods { service, labels } in services {
        let policies: Vec<_> = restricting(labels, policies).collect();
        let names = match policies.is_empty() {
            true => &mut unrestricted,
            // The peers of all policies that select a pod are added.
            false if policies.into_iter().any(admits_everyone) => &mut open,
            false => &mut restricted,
        };
        names.push(service.as_str());
    }
    let mut findings = Vec::new();
    if !unrestricted.is_empty() {
        findings.push(Finding::warning(
            format!(
                "no NetworkPolicy selects the pods of {}: every pod can connect",
                unrestricted.join(", ")
            ),
            "set networkPolicy.enabled, from and adminFrom (docs/guides/installing.md, Harden)",
        ));
    }
    if !open.is_empty() {
        findings.push(Finding::note(format!(
            "NetworkPolicies close the unused ports of {}, and admit every peer on some of the others",
            open.join(", ")
        )));
    }
    if !restricted.is_empty() {
        let services = restricted.join(", ");
        findings.push(Finding::ok(format!("NetworkPolicies restrict the peers of {services}")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::finding::FindingLevel;
    use super::*;

    fn policy(spec: Value) -> NetworkPolicy {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn services() -> [ServicePods; 2] {
        ["a", "b"].map(|name| ServicePods {
            service: name.to_owned(),
            labels: BTreeMap::from([("app.kubernetes.io/name".to_owned(), name.to_owned())]),
        })
    }

    fn of(name: &str) -> Value {
        json!({"matchLabels": {"app.kubernetes.io/name": name}})
    }

    fn levels(findings: &[Finding]) -> Vec<FindingLevel> {
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn services_without_a_network_policy_are_reported() {
        use FindingLevel::{Note, Ok, Warning};
        let without = judge(&services(), &[]);
        assert_eq!(levels(&without), [Warning]);
        assert!(without[0].what.contains("the pods of a, b"), "{without:?}");

        let peer = json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/24"}}]}]);
        let one = judge(&services(), &[policy(json!({"podSelector": of("a"), "ingress": peer}))]);
        assert_eq!(levels(&one), [Warning, Ok]);
        assert!(one[0].what.contains("the pods of b:") && one[1].what.ends_with("peers of a"), "{one:?}");

        let open = json!([{"ports": [{"port": 8080}]}]);
        let both = judge(&services(), &[policy(json!({"podSelector": {}, "ingress": open}))]);
        assert_eq!(levels(&both), [Note]);
        // Nobody may connect.
        assert_eq!(levels(&judge(&services(), &[policy(json!({"podSelector": {}}))])), [Ok]);
    }

    #[test]
    fn a_policy_for_egress_alone_does_not_restrict_connections() {
        let egress = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": []});
        assert_eq!(levels(&judge(&services(), &[policy(egress)])), [FindingLevel::Warning]);
    }
}
