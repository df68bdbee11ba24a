//! The report on a node.

use std::fmt::Write;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use podward_diagnosis::{age, safe_text};
use serde::Serialize;

use super::many::{self, PodsReport};
use crate::api::with_timeout;

/// What is wrong with a node and its pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReport {
    node: String,
    /// The conditions that are not as they should be, and whether the node is cordoned.
    conditions: Vec<String>,
    taints: Vec<String>,
    #[serde(flatten)]
    pub(super) pods: PodsReport,
}

impl NodeReport {
    pub(super) fn text(&self, now: Timestamp) -> String {
        let NodeReport { node, conditions, taints, pods } = self;
        let mut text = String::new();
        let next = format!("; next: kubectl describe node {node}");
        let _ = match (conditions.first(), pods.groups.first()) {
            (Some(condition), _) => writeln!(text, "node {node}: {condition}{next}"),
            (None, Some(group)) => writeln!(text, "node {node} is Ready; {}", group.line(now)),
            (None, None) => writeln!(text, "node {node} is Ready"),
        };
        for line in conditions.iter().skip(1).chain(taints) {
            let _ = writeln!(text, "  {line}");
        }
        safe_text(&text) + &pods.text(now)
    }
}

/// Reads a node and its pods.
pub(super) async fn report(client: &Client, name: &str) -> Result<NodeReport> {
    let node = with_timeout(Api::<Node>::all(client.clone()).get(name)).await;
    let node = node.with_context(|| format!("look up node {name}"))?;
    let params = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let pods = many::of_pods(client, many::list(client, None, params).await?).await?;
    let spec = node.spec.unwrap_or_default();
    let now = Timestamp::now();
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    // Ready has to be True, and the pressures False.
    let wrong = conditions.into_iter().filter(|it| (it.type_ == "Ready") != (it.status == "True"));
    let mut wrong: Vec<String> = wrong
        .map(|it| {
            let since = it.last_transition_time.map(|time| format!(" ({})", age(time.0, now)));
            let message = it.message.filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
            let (since, message) = (since.unwrap_or_default(), message.unwrap_or_default());
            format!("{} is {}{since}{message}", it.type_, it.status)
        })
        .collect();
    wrong.sort_by_key(|text| !text.starts_with("Ready"));
    if spec.unschedulable == Some(true) {
        wrong.push("it is cordoned: no new pods are scheduled on it".to_owned());
    }
    let taints = spec
        .taints
        .unwrap_or_default()
        .into_iter()
        .map(|taint| format!("taint {}={}:{}", taint.key, taint.value.unwrap_or_default(), taint.effect));
    Ok(NodeReport { node: name.to_owned(), conditions: wrong, taints: taints.collect(), pods })
}
