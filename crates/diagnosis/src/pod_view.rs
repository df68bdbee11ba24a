//! What a pod and its containers report.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition};

/// Returns the phase in `status`.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Returns whether the containers never run again.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns whether the pod has a node.
#[must_use]
pub fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}

/// Returns whether the pod is Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Returns a condition of the pod.
pub(crate) fn condition<'p>(pod: &'p Pod, kind: &str) -> Option<&'p PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Returns the condition that says why the control plane deletes the pod. Its reason is such as `PreemptionByScheduler`.
pub(crate) fn disruption(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "DisruptionTarget").filter(|it| it.status == "True")
}

/// The status of a container, and whether it is an init container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerView<'p> {
    pub(crate) status: &'p ContainerStatus,
    pub(crate) is_init: bool,
}

impl<'p> ContainerView<'p> {
    pub(crate) fn name(&self) -> &'p str {
        &self.status.name
    }

    pub(crate) fn state(&self) -> Option<&'p ContainerState> {
        self.status.state.as_ref()
    }

    /// The time since which the container runs.
    pub(crate) fn running_since(&self) -> Option<Timestamp> {
        self.state()?.running.as_ref()?.started_at.as_ref().map(|time| time.0)
    }

    /// The reason and the message of a container that does not run.
    pub(crate) fn waiting(&self) -> Option<(&'p str, &'p str)> {
        let waiting = self.state()?.waiting.as_ref()?;
        Some((waiting.reason.as_deref().unwrap_or_default(), waiting.message.as_deref().unwrap_or_default()))
    }

    /// `init container NAME` or `container NAME`.
    pub(crate) fn words(&self) -> String {
        format!("{}container {}", if self.is_init { "init " } else { "" }, self.name())
    }
}

/// Returns the containers of a pod in the order in which they start.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = ContainerView<'_>> + Clone {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let main = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let init = init.iter().map(|status| ContainerView { status, is_init: true });
    init.chain(main.iter().map(|status| ContainerView { status, is_init: false }))
}
