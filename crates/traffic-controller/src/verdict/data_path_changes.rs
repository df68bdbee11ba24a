//! The data paths through which a pod receives traffic.

use crate::index::{DataPath, EndpointChange, PodEndpoints, ServiceKind, ServiceMembership};

/// The data paths through which a pod receives traffic, or did until recently, with the last change that each must
/// apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataPathChanges {
    changes: [Option<EndpointChange>; DataPath::COUNT],
    /// Who sends traffic past kube-proxy, or may do so.
    bypass: Option<String>,
}

impl DataPathChanges {
    /// Returns the data paths of `services`.
    pub(super) fn of(endpoints: &PodEndpoints, services: &[&ServiceMembership]) -> Self {
        let last = endpoints.changed.iter().flatten().max_by_key(|change| change.seen).copied();
        let mut changes = [None; DataPath::COUNT];
        for service in services {
            let data_path = match service.kind {
                ServiceKind::Proxied => DataPath::KubeProxy,
                ServiceKind::Headless => DataPath::Dns,
                ServiceKind::OtherProxy => DataPath::OtherProxy,
                ServiceKind::ExternalName => continue,
            };
            changes[data_path.index()] = last;
        }
        let proxied = services.iter().filter(|service| service.kind == ServiceKind::Proxied);
        let bypass = proxied.filter_map(|service| service.bypass.clone()).next();
        Self { changes, bypass }
    }

    /// Adds the data paths of the Services that the pod has left.
    pub(super) fn with_former(mut self, endpoints: &PodEndpoints) -> Self {
        for (change, left) in self.changes.iter_mut().zip(endpoints.left) {
            *change = change.or(left);
        }
        self.bypass = self.bypass.or_else(|| endpoints.left_bypass.clone());
        self
    }

    /// Returns true if there is no data path.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.iter().all(Option::is_none)
    }

    /// Returns the change that `data_path` must apply. `None` if the pod receives no traffic through it.
    pub(super) fn get(&self, data_path: DataPath) -> Option<&EndpointChange> {
        self.changes[data_path.index()].as_ref()
    }

    /// Returns who sends traffic past kube-proxy, or may do so, with the change that has to reach them.
    pub(super) fn bypass(&self) -> Option<(&str, &EndpointChange)> {
        self.bypass.as_deref().zip(self.get(DataPath::KubeProxy))
    }
}
