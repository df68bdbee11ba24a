//! The numbers in the status of a set.

use super::pod::SetPod;
use super::set::SetSpec;

/// The numbers in the status of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCounts {
    /// `replicas`
    pub replicas: u32,
    /// `readyReplicas`: Ready, in any state, and no containers are replaced.
    pub ready: u32,
    /// `availableReplicas`
    pub available: u32,
    /// `updatedReplicas`: with the revision of the template.
    pub updated: u32,
    /// `updatedReadyReplicas`
    pub updated_ready: u32,
    /// `updatedAvailableReplicas`
    pub updated_available: u32,
    /// `expectedUpdatedReplicas`: the replicas less the partition.
    pub expected_updated: u32,
}

/// Returns the numbers in the status of a set with these pods.
#[must_use]
pub fn count(set: &SetSpec, pods: &[SetPod]) -> SetCounts {
    let expected_updated = set.replicas - set.partition();
    let mut counts = SetCounts { expected_updated, ..SetCounts::default() };
    for pod in pods {
        let (ready, available) = (u32::from(pod.is_ready()), u32::from(pod.is_available()));
        let updated = u32::from(pod.is_updated());
        counts.replicas += 1;
        counts.ready += ready;
        counts.available += available;
        counts.updated += updated;
        counts.updated_ready += updated * ready;
        counts.updated_available += updated * available;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::PodRevision;
    use super::super::plan::tests::{pod, set};
    use super::*;

    #[test]
    fn a_pod_whose_containers_are_replaced_is_not_ready() {
        // The kubelet has not seen the condition yet.
        let replaced = SetPod { update_ready: Some(false), ..pod("a") };
        let new = SetPod { update_ready: None, ..pod("b") };
        let old = SetPod { revision: PodRevision::Other { in_place: true }, ..pod("c") };
        let counts = count(&set(3), &[replaced, new, old]);
        assert_eq!((counts.replicas, counts.ready, counts.available), (3, 2, 2));
        assert_eq!((counts.updated, counts.updated_ready, counts.updated_available), (2, 1, 1));
    }
}
