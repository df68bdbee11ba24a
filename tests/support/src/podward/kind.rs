//! The kinds of services.

use std::fmt;

/// The services of Podward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceKind {
    /// `mutating-webhook`.
    MutatingWebhook,
    /// `validating-webhook`.
    ValidatingWebhook,
    /// `lifecycle-controller`.
    LifecycleController,
    /// `traffic-controller`.
    TrafficController,
    /// `service-discovery-bridge`, which is installed only if it is wanted.
    ServiceDiscoveryBridge,
    /// `cloneset-controller`, which is installed only if it is wanted.
    ClonesetController,
}

impl ServiceKind {
    /// The services that are installed by default.
    pub const ALL: [ServiceKind; 4] = [
        ServiceKind::MutatingWebhook,
        ServiceKind::ValidatingWebhook,
        ServiceKind::LifecycleController,
        ServiceKind::TrafficController,
    ];

    /// Returns the name of its program, service account and Service.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ServiceKind::MutatingWebhook => "mutating-webhook",
            ServiceKind::ValidatingWebhook => "validating-webhook",
            ServiceKind::LifecycleController => "lifecycle-controller",
            ServiceKind::TrafficController => "traffic-controller",
            ServiceKind::ServiceDiscoveryBridge => "service-discovery-bridge",
            ServiceKind::ClonesetController => "cloneset-controller",
        }
    }

    /// Returns whether one of its replicas is the leader. Its Lease has its name.
    pub(super) const fn has_leader(self) -> bool {
        matches!(self, ServiceKind::LifecycleController | ServiceKind::ClonesetController)
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
