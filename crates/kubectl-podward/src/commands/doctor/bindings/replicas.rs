//! The replicas of the service-discovery-bridge, and the Leases that they hold.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::super::finding::{Finding, is_denied};
use super::super::target::DoctorTarget;
use super::bridge::BRIDGE;

/// The replicas of the service-discovery-bridge.
#[derive(Clone, Debug, Default)]
pub(super) struct BridgeReplicas {
    /// The wanted and the available ones. `None` if it is not installed.
    deployed: Option<(i32, i32)>,
    /// The number of Leases. `None` if they may not be listed.
    leases: Option<usize>,
    holders: BTreeSet<String>,
}

pub(super) async fn read(target: &DoctorTarget) -> Result<BridgeReplicas> {
    let deployments = target.deployments().await?;
    let deployment = deployments.iter().find(|deployment| deployment.name_any() == BRIDGE);
    let Some(deployment) = deployment else { return Ok(BridgeReplicas::default()) };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    let leases: Api<Lease> = Api::namespaced(target.client.clone(), &target.namespace);
    let ours = ListParams::default().labels(&format!("podward.io/member-of={BRIDGE}"));
    let leases = match leases.list(&ours).await {
        Ok(leases) => Some(leases.items),
        Err(error) if is_denied(Some(&error)) => None,
        Err(error) => return Err(error).with_context(|| format!("list the Leases of the {BRIDGE}")),
    };
    let now = Timestamp::now();
    Ok(BridgeReplicas {
        deployed: Some((wanted, available)),
        leases: leases.as_ref().map(Vec::len),
        holders: leases.iter().flatten().filter_map(|lease| holder(lease, now)).collect(),
    })
}

/// Returns the replica that holds a Lease, if it renews it.
fn holder(lease: &Lease, now: Timestamp) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let age = now.as_second() - spec.renew_time.as_ref()?.0.as_second();
    (age <= i64::from(spec.lease_duration_seconds.unwrap_or_default())).then_some(holder)
}

impl BridgeReplicas {
    /// Returns the replicas that hold a Lease. `None` if that is not known.
    pub(super) fn holders(&self) -> Option<&BTreeSet<String>> {
        self.leases.map(|_| &self.holders)
    }

    /// Returns the findings, where there are `bindings` DiscoveryBindings.
    pub(super) fn findings(&self, bindings: usize, namespace: &str) -> Vec<Finding> {
        let look = format!("kubectl -n {namespace} logs deployment/{BRIDGE}");
        let Some((wanted, available)) = self.deployed else {
            return match bindings {
                0 => Vec::new(),
                _ => vec![Finding::failed(
                    format!("there are {bindings} DiscoveryBindings, but the {BRIDGE} is not installed"),
                    "helm upgrade with service-discovery-bridge.enabled=true; or, to give them up, for each: kubectl delete \
                     discoverybinding NAME --wait=false, kubectl podward release discoverybinding/NAME, and kubectl delete \
                     lifecyclehook NAMESPACE.NAME",
                )],
            };
        };
        if wanted == 0 {
            return vec![Finding::failed(
                format!("{BRIDGE} is scaled to 0: {bindings} DiscoveryBindings hold their pods"),
                format!("kubectl -n {namespace} scale deployment {BRIDGE} --replicas=2"),
            )];
        }
        if available <= 0 {
            return vec![Finding::failed(
                format!(
                    "{BRIDGE}: none of {wanted} replicas is available: {bindings} DiscoveryBindings hold their pods"
                ),
                format!("kubectl -n {namespace} describe pods -l app.kubernetes.io/name={BRIDGE}"),
            )];
        }
        let mut findings = Vec::new();
        if available < wanted {
            findings.push(Finding::warning(
                format!("{BRIDGE}: {available} of {wanted} replicas are available"),
                format!(
                    "wait if a rollout is in progress; otherwise: kubectl -n {namespace} describe pods -l \
                     app.kubernetes.io/name={BRIDGE}"
                ),
            ));
        }
        let holding = i32::try_from(self.holders.len()).unwrap_or(i32::MAX);
        match self.leases {
            None => findings.push(Finding::skipped(format!(
                "the Leases of the {BRIDGE} were not read: that needs the right to list Leases in namespace {namespace}"
            ))),
            Some(0) => findings.push(Finding::failed(
                format!("the Leases of the {BRIDGE} do not exist: no replica keeps a DiscoveryBinding"),
                format!("{look} says why the replicas cannot create them; if it has forbidden, helm upgrade renews their Role"),
            )),
            Some(_) if holding == 0 => findings.push(Finding::failed(
                format!("no replica of the {BRIDGE} renews a Lease: nobody keeps a DiscoveryBinding"),
                format!("{look} says why; if there is no error, the clock of this machine is wrong"),
            )),
            Some(leases) if holding < available => findings.push(Finding::warning(
                format!("{holding} of {available} replicas of the {BRIDGE} hold one of the {leases} Leases; the others do nothing"),
                format!("{look} says why"),
            )),
            Some(_) => findings.push(Finding::ok(format!("{holding} replicas share the DiscoveryBindings"))),
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::finding::FindingLevel;
    use super::*;

    fn findings(
        deployed: Option<(i32, i32)>,
        leases: Option<usize>,
        holders: usize,
    ) -> Vec<(FindingLevel, String)> {
        let holders = (0..holders).map(|number| number.to_string()).collect();
        let found = BridgeReplicas { deployed, leases, holders }.findings(3, "ours").into_iter();
        found.map(|finding| (finding.level, finding.what)).collect()
    }

    #[test]
    fn replicas_are_judged() {
        let (ok, warning, failed) = (FindingLevel::Ok, FindingLevel::Warning, FindingLevel::Failed);
        for (deployed, leases, holders, level, words) in [
            (None, None, 0, failed, "is not installed"),
            (Some((0, 0)), Some(16), 0, failed, "is scaled to 0"),
            (Some((2, 0)), Some(16), 1, failed, "none of 2 replicas is available"),
            (Some((2, 2)), Some(0), 0, failed, "do not exist"),
            (Some((2, 2)), Some(16), 0, failed, "no replica of the service-discovery-bridge renews a Lease"),
            (Some((2, 2)), Some(16), 1, warning, "1 of 2 replicas"),
            (Some((2, 2)), None, 0, FindingLevel::Skipped, "were not read"),
            (Some((2, 2)), Some(16), 2, ok, "2 replicas share"),
        ] {
            let found = findings(deployed, leases, holders);
            assert!(found.len() == 1 && found[0].0 == level && found[0].1.contains(words), "{found:?}");
        }
        assert_eq!(findings(Some((3, 2)), Some(16), 2).len(), 2);
        assert!(BridgeReplicas::default().findings(0, "ours").is_empty());
    }

    #[test]
    fn only_a_lease_that_is_renewed_has_a_holder() {
        let lease = |holder: &str, renewed: &str| -> Lease {
            serde_json::from_value(json!({
                "metadata": {"name": "service-discovery-bridge-0"},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 12, "renewTime": renewed},
            }))
            .unwrap()
        };
        let now = "2026-01-01T10:00:20Z".parse().unwrap();
        assert_eq!(holder(&lease("a", "2026-01-01T10:00:10.000000Z"), now).as_deref(), Some("a"));
        assert_eq!(holder(&lease("a", "2026-01-01T10:00:00.000000Z"), now), None);
        assert_eq!(holder(&lease("", "2026-01-01T10:00:19.000000Z"), now), None);
        assert_eq!(holder(&Lease::default(), now), None);
    }
}
