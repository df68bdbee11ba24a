//! Checks the DiscoveryBindings, the service that is responsible for them, and that they hold the pods that they select.

mod bridge;
mod pods;
mod replicas;
mod state;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt};
use podward_api::{ClusterRegistry, DiscoveryBinding};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

use super::finding::{Finding, is_denied};
use super::target::DoctorTarget;

pub(in crate::commands) use bridge::BRIDGE;
pub(in crate::commands) use state::{BindingFacts, findings as binding_findings};

/// How often a list is asked for again while the API server prepares the storage of the resource.
const INITIALIZING_ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// The greatest number of findings about single bindings.
const MAX_FINDINGS: usize = 50;

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    let client = &target.client;
    let Some(found) = list::<DeserializeGuard<DiscoveryBinding>>(client).await? else {
        return Ok(vec![Finding::skipped("the cluster does not serve DiscoveryBindings")]);
    };
    let (mut bindings, mut of_bindings) = (Vec::new(), Vec::new());
    for guard in found {
        match guard.0 {
            Ok(binding) => bindings.push(binding),
            Err(error) => of_bindings.push(Finding::failed(
                format!(
                    "DiscoveryBinding {}/{} cannot be read: {}",
                    error.metadata.namespace.as_deref().unwrap_or_default(),
                    error.metadata.name.as_deref().unwrap_or_default(),
                    error.error
                ),
                "correct it, or use the doctor of the installed version",
            )),
        }
    }
    let replicas = replicas::read(target).await?;
    let mut findings = replicas.findings(bindings.len() + of_bindings.len(), &target.namespace);
    if bindings.is_empty() && of_bindings.is_empty() {
        findings.push(Finding::ok("there are no DiscoveryBindings"));
        return Ok(findings);
    }
    // Who may not list them is told by the status of a binding.
    let registries: Option<BTreeSet<String>> = match list::<DeserializeGuard<ClusterRegistry>>(client).await {
        Ok(found) => found.map(|found| found.iter().map(name_of).collect()),
        Err(error) if is_denied(error.downcast_ref()) => None,
        Err(error) => return Err(error),
    };
    let about =
        BindingFacts { registries: registries.as_ref(), holders: replicas.holders(), now: Timestamp::now() };
    of_bindings.extend(bindings.iter().flat_map(|binding| binding_findings(binding, &about)));
    of_bindings.extend(pods::check(client, &bindings).await?);
    if of_bindings.is_empty() {
        of_bindings.push(Finding::ok(format!("{} DiscoveryBindings are as they should be", bindings.len())));
    }
    of_bindings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    if of_bindings.len() > MAX_FINDINGS {
        let more = of_bindings.len() - MAX_FINDINGS;
        let (last, kept) = (of_bindings[MAX_FINDINGS].level, MAX_FINDINGS);
        of_bindings.truncate(kept);
        let rest = format!("{more} more findings about DiscoveryBindings");
        of_bindings.push(Finding {
            level: last,
            what: rest,
            next: Some("kubectl get discoverybindings -A".to_owned()),
        });
    }
    findings.extend(of_bindings);
    Ok(findings)
}

/// Lists the objects of a kind in the cluster. `None` if it is not served.
async fn list<K>(client: &Client) -> Result<Option<Vec<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let objects = Api::<K>::all(client.clone());
    for _ in 0..INITIALIZING_ATTEMPTS {
        match objects.list(&ListParams::default()).await {
            // The API server answers so for a moment after the definition of the resource was created.
            Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(PAUSE).await,
            answer => return listed(answer.map(|found| found.items)),
        }
    }
    listed(objects.list(&ListParams::default()).await.map(|found| found.items))
}

fn listed<K: Resource<DynamicType = ()>>(answer: kube::Result<Vec<K>>) -> Result<Option<Vec<K>>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("list the {}", K::plural(&()))),
    }
}

fn name_of(registry: &DeserializeGuard<ClusterRegistry>) -> String {
    registry.name_any()
}
