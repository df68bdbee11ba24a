//! The objects that a diagnosis reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::events::PodEvents;

/// A pod and the objects around it. What could not be read is empty, and named in `unread`.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The time at which the objects were read.
    pub now: Timestamp,
    /// The pod.
    pub pod: Pod,
    /// Its events.
    pub events: PodEvents,
    /// Its node, if it has one that exists.
    pub node: Option<Node>,
    /// The Lease of the kubelet of its node.
    pub lease: Option<Lease>,
    /// All nodes, for a pod that is not scheduled.
    pub nodes: Arc<Vec<Node>>,
    /// The pods of some nodes, for a pod that is not scheduled.
    pub pods_of_nodes: Arc<BTreeMap<String, Vec<Pod>>>,
    /// The PersistentVolumeClaims that its volumes use, for a pod that is not scheduled.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Their PersistentVolumes.
    pub volumes: Vec<PersistentVolume>,
    /// The StorageClasses.
    pub classes: Vec<StorageClass>,
    /// The PodDisruptionBudgets of the namespace.
    pub budgets: Arc<Vec<PodDisruptionBudget>>,
    /// The Services of the namespace.
    pub services: Arc<Vec<Service>>,
    /// The EndpointSlices of the namespace.
    pub slices: Arc<Vec<EndpointSlice>>,
    /// The last lines of the previous run, by container.
    pub previous_logs: BTreeMap<String, String>,
    /// What could not be read, with the reasons: `KIND could not be read: REASON`.
    pub unread: Vec<String>,
}

impl Snapshot {
    /// Returns `namespace/name` of the pod.
    #[must_use]
    pub fn pod_name(&self) -> String {
        let metadata = &self.pod.metadata;
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
    }

    /// Returns whether objects of this kind, as `nodes` or `StorageClasses`, could not be read: then it is not known whether
    /// there are any.
    #[must_use]
    pub fn is_unread(&self, kind: &str) -> bool {
        let rest =
            |text: &str| text.strip_prefix(kind).is_some_and(|rest| rest.starts_with(" could not be read"));
        self.unread.iter().any(|text| rest(text))
    }
}
