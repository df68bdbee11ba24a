//! The recorded part of a version of a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use podward_core::{ConditionStatus, Operations, keys, keys::Key};
use serde::Serialize;

use crate::pods;

/// A version of a pod, reduced to the parts that the protocol uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodVersion {
    /// The time of the observation, in milliseconds since the timeline started.
    pub at_ms: f64,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// The protocol's labels.
    pub labels: BTreeMap<String, String>,
    /// True if the pod has the readiness gate.
    pub has_gate: bool,
    /// The gate's condition: `True`, `False` or `Unknown`.
    pub gate: Option<&'static str>,
    /// True if the pod is Ready.
    pub ready: bool,
    /// The finalizers of consumers that are present.
    pub holders: Vec<String>,
    /// The expected finalizers that are missing.
    pub missing: Vec<String>,
    /// True if the pod is being deleted.
    pub terminating: bool,
    /// True if the pod has ended: its phase is Succeeded or Failed.
    pub ended: bool,
    /// The grace period in seconds, once the pod is being deleted.
    pub grace_period_seconds: Option<i64>,
    /// The image of the first container in the status.
    pub image: Option<String>,
}

impl PodVersion {
    pub(super) fn of(pod: &Pod, at_ms: f64) -> Self {
        let view = pods::view(pod);
        let is_protocol = |key: &&String| !matches!(Key::parse(key), Key::Other);
        let missing = match view.expected_finalizers() {
            Ok(expected) => {
                expected.missing(view.finalizers).map(|(_, finalizer)| finalizer.to_owned()).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        Self {
            at_ms,
            resource_version: pod.resource_version().unwrap_or_default(),
            labels: view
                .labels
                .iter()
                .filter(|(key, _)| is_protocol(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            has_gate: view.has_gate,
            gate: view.gate.map(ConditionStatus::as_str),
            ready: view.ready,
            holders: pods::holders(pod).map(str::to_owned).collect(),
            missing,
            terminating: view.terminating,
            ended: pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed")),
            grace_period_seconds: pod.metadata.deletion_grace_period_seconds,
            image: pods::container(pod).map(|status| status.image.clone()),
        }
    }

    /// Returns the operations.
    pub(super) fn operations(&self) -> Operations<'_> {
        Operations::parse(&self.labels)
    }

    /// Returns whether the gate's condition is True.
    pub(super) fn gate_is_on(&self) -> bool {
        self.gate == Some("True")
    }

    /// Returns whether the pod has the label `service-available`.
    pub(super) fn is_available(&self) -> bool {
        self.labels.contains_key(keys::SERVICE_AVAILABLE)
    }
}
