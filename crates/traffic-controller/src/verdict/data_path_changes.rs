//! The data paths through which a pod receives traffic.

use crate::index::{DataPath, EndpointChange, PodEndpoints, ServiceKind, ServiceMembership};

/// The data paths through which a pod receives traffic, or did until recently, with the last change that each must
/// apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataPathChanges([Option<EndpointChange>; DataPath::COUNT]);

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
        Self(changes)
    }

    /// Adds the data paths of the Services that the pod has left.
    pub(super) fn with_former(mut self, endpoints: &PodEndpoints) -> Self {
        for (change, left) in self.0.iter_mut().zip(endpoints.left) {
            *change = change.or(left);
        }
        self
    }

    /// Returns true if there is no data path.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Returns the change that `data_path` must apply. `None` if the pod receives no traffic through it.
    pub(super) fn get(&self, data_path: DataPath) -> Option<&EndpointChange> {
        self.0[data_path.index()].as_ref()
    }
}
