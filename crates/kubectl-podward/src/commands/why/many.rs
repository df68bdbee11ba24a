//! The report on many pods: those that do not run, serve or end, by cause.

use std::fmt::Write;

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use podward_diagnosis::pod::may_have_causes;
use podward_diagnosis::{Cause, rollout, safe_text};
use serde::Serialize;

use super::{alike, pod};
use crate::api::list_all;
use crate::gather::Gatherer;
use crate::parsed::parsed;

/// The pods whose objects are read at a time.
const AT_A_TIME: usize = 8;
/// The pods that are read at most. Beyond that, causes repeat themselves.
const MOST: usize = 200;

/// The causes of several pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodsReport {
    /// The number of pods that were looked at.
    pub(super) pods: usize,
    /// The number of pods that do not run, serve or end.
    pub(super) waiting: usize,
    /// Their names.
    #[serde(skip)]
    pub(super) names: Vec<String>,
    pub(super) groups: Vec<PodGroup>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
}

/// Pods with the same cause.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodGroup {
    /// Namespace and name of one of them.
    pub(super) pod: String,
    pub(super) count: usize,
    #[serde(flatten)]
    pub(super) cause: Cause,
}

impl PodGroup {
    /// `pod NAMESPACE/NAME: CAUSE (and 4 more pods)`.
    pub(super) fn line(&self, now: Timestamp) -> String {
        let more = match self.count {
            0 | 1 => String::new(),
            2 => " (and 1 more pod)".to_owned(),
            count => format!(" (and {} more pods)", count - 1),
        };
        format!("pod {}: {}{more}", self.pod, self.cause.line(now))
    }
}

impl PodsReport {
    /// Returns the names of the pods that do not run, serve or end.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(super) fn text(&self, now: Timestamp) -> String {
        let mut text = String::new();
        for group in &self.groups {
            let _ = writeln!(text, "{}", group.line(now));
        }
        let PodsReport { pods, waiting, notes, .. } = self;
        let _ = match waiting {
            0 => writeln!(text, "{pods} pods, and nothing is wrong with them"),
            waiting => writeln!(text, "{waiting} of {pods} pods wait"),
        };
        for note in notes {
            let _ = writeln!(text, "{}", safe_text(note));
        }
        text
    }
}

/// Reads the pods of a namespace, or of the cluster.
pub(super) async fn report(
    client: &Client,
    namespace: Option<&str>,
    selector: Option<&str>,
) -> Result<PodsReport> {
    let params = ListParams { label_selector: selector.map(ToOwned::to_owned), ..ListParams::default() };
    of_pods(client, list(client, namespace, params).await?).await
}

/// Lists pods in pages.
pub(super) async fn list(
    client: &Client,
    namespace: Option<&str>,
    params: ListParams,
) -> Result<Vec<DynamicObject>> {
    let kind = ApiResource::erase::<ApiPod>(&());
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    list_all(&api, params).await.context("list pods")
}

/// Finds the causes of those pods that have some.
pub(super) async fn of_pods(client: &Client, objects: Vec<DynamicObject>) -> Result<PodsReport> {
    let pods = objects.len();
    let mut waiting = Vec::new();
    for object in objects {
        let pod: ApiPod = parsed(&object)?;
        if may_have_causes(&pod) {
            waiting.push((object, pod));
        }
    }
    let mut notes = Vec::new();
    let mut waiting = alike::group(waiting);
    let number = waiting.len();
    if number > MOST {
        notes.push(format!("the first {MOST} of {number} waiting pods that differ were looked at"));
        waiting.truncate(MOST);
    }
    let gatherer = Gatherer::new(client);
    let reports = stream::iter(waiting).map(async |alike| {
        let report = pod::of_pod(&gatherer, alike.object.clone()).await?;
        anyhow::Ok((alike, report))
    });
    let reports: Vec<_> = reports.buffered(AT_A_TIME).collect().await;
    let mut found = Vec::new();
    for report in reports {
        let (alike, report) = report?;
        notes.extend(report.notes.iter().filter(|note| note.contains("could not be read")).cloned());
        found.extend(alike.with_causes(report.causes));
    }
    notes.sort();
    notes.dedup();
    let waiting = found.iter().filter(|(_, causes)| !causes.is_empty());
    let names: Vec<_> = waiting.map(|(pod, _)| pod.name_any()).collect();
    let groups = rollout::summary(found);
    let groups = groups.into_iter().map(|(pods, cause)| {
        let pod =
            pods.first().map(|pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()));
        PodGroup { pod: pod.unwrap_or_default(), count: pods.len(), cause }
    });
    Ok(PodsReport { pods, waiting: names.len(), names, groups: groups.collect(), notes })
}
