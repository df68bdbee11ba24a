//! The report on one pod.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use podward_api::DiscoveryBinding;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE};
use podward_diagnosis::pod::{diagnose, is_held};
use podward_diagnosis::traffic::endpoints as traffic_endpoints;

use super::held::inspect;
use super::report::WhyReport;
use super::rules::RuleWithStatus;
use super::{bindings, traffic};
use crate::api::{is_not_found, with_timeout};
use crate::clock::now;
use crate::gather::{Gatherer, Listed};
use crate::parsed::parsed;

/// Reads a pod and returns the report on it.
pub(super) async fn report(client: &Client, namespace: &str, name: &str) -> Result<WhyReport> {
    let kind = ApiResource::erase::<ApiPod>(&());
    let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    match with_timeout(pods.get(name)).await {
        Ok(found) => of_pod(&Gatherer::new(client), found).await,
        Err(error) if is_not_found(&error) => bail!(
            "there is no pod {namespace}/{name}: if its workload should have created it, ask for that \
             (kubectl podward why deploy/NAME -n {namespace})"
        ),
        Err(error) => Err(error).with_context(|| format!("look up pod {namespace}/{name}")),
    }
}

/// Returns the report on a pod that was read.
pub(super) async fn of_pod(gatherer: &Gatherer<'_>, found: DynamicObject) -> Result<WhyReport> {
    let namespace = found.namespace().unwrap_or_default();
    let pod: ApiPod = parsed(&found)?;
    let opted_in = found.labels().get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE);
    let (snapshot, rules, bindings) = futures::join!(
        gatherer.snapshot(pod),
        of_opted_in(opted_in, gatherer.rules(&namespace)),
        of_opted_in(opted_in, gatherer.bindings(&namespace))
    );
    let rules = rules.map(|rules| rules.iter().cloned().filter_map(RuleWithStatus::applying).collect());
    let bindings: Result<Vec<DiscoveryBinding>, String> =
        bindings.map(|bindings| bindings.iter().filter_map(|guard| guard.0.clone().ok()).collect());
    let known = bindings.clone().unwrap_or_default();
    let mut report = inspect(&found, rules, now())?;
    bindings::add_waits(&mut report, bindings, Timestamp::now());
    let message = report.message.clone();
    report.causes = diagnose(&snapshot, is_held(&snapshot.pod).then_some(message.as_str()));
    let next = report.waits.first().map(|wait| wait.next.clone());
    let next = next.or_else(|| report.registries.first().map(|wait| wait.next.clone()));
    if let (Some(next), Some(cause)) = (next, report.causes.iter_mut().find(|cause| cause.what == message)) {
        cause.next = next;
    }
    report.traffic = traffic::sources(traffic_endpoints(&snapshot), &parsed(&found)?, &known);
    report.notes.extend(snapshot.unread);
    Ok(report)
}

/// Other pods have no rules and no bindings.
async fn of_opted_in<T>(opted_in: bool, listed: impl Future<Output = Listed<T>>) -> Listed<T> {
    if opted_in { listed.await } else { Ok(Arc::default()) }
}
