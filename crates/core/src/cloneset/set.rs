//! What a CloneSet asks for.

use std::collections::BTreeSet;

use super::amount::Amount;
use super::hook::Lifecycle;

/// How pods get a new revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateKind {
    /// They are deleted, and others are created.
    #[default]
    Recreate,
    /// They are changed in place if the change allows it, and recreated otherwise.
    InPlaceIfPossible,
    /// They are changed in place, or not at all.
    InPlaceOnly,
    /// Others are created after somebody has deleted them.
    OnDelete,
}

/// The parts of the spec of a CloneSet that [`plan`](super::plan) needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSpec {
    /// The number of pods.
    pub replicas: u32,
    /// How pods get a new revision.
    pub update: UpdateKind,
    /// True if no pod gets a new revision.
    pub paused: bool,
    /// The pods that keep an old revision.
    pub partition: Amount,
    /// The labels whose pods are spread over the order of an update.
    pub scatter: Vec<(String, String)>,
    /// The pods that may be unavailable. Default of the API: 20 %.
    pub max_unavailable: Amount,
    /// The pods above `replicas` during an update.
    pub max_surge: Amount,
    /// The pods that may be unavailable while pods are added.
    pub scale_max_unavailable: Option<Amount>,
    /// The names of pods that are to be deleted.
    pub pods_to_delete: BTreeSet<String>,
    /// True if pods in PreparingDelete do not count as replicas.
    pub exclude_preparing_delete: bool,
    /// The hooks. `None` if the set has no lifecycle.
    pub lifecycle: Option<Lifecycle>,
    /// The markers that must leave opted-in pods before others delete them, as they are stored.
    pub delete_hold: Option<String>,
}

impl SetSpec {
    /// Returns the number of pods that keep an old revision. Below 100 %, at least one pod can be updated.
    #[must_use]
    pub fn partition(&self) -> u32 {
        let kept = self.partition.rounded_up(self.replicas).min(self.replicas);
        match self.partition {
            Amount::Percent(percent) if percent < 100 => kept.min(self.replicas.saturating_sub(1)),
            _ => kept,
        }
    }

    /// Returns the number of pods above `replicas` during an update.
    #[must_use]
    pub fn max_surge(&self) -> u32 {
        self.max_surge.rounded_up(self.replicas)
    }

    /// Returns the number of pods that may be unavailable. A share is rounded up if there is no surge, and down otherwise.
    #[must_use]
    pub fn max_unavailable(&self) -> u32 {
        match self.max_surge() {
            0 => self.max_unavailable.rounded_up(self.replicas).max(1),
            _ => self.max_unavailable.rounded_down(self.replicas),
        }
    }

    /// Returns true if pods get a new revision at the moment.
    pub(super) fn updates(&self) -> bool {
        !self.paused && self.update != UpdateKind::OnDelete
    }

    /// Returns true if pods are changed in place where that is possible.
    pub(super) fn in_place(&self) -> bool {
        matches!(self.update, UpdateKind::InPlaceIfPossible | UpdateKind::InPlaceOnly)
    }

    /// Returns the hooks.
    pub(super) fn hooks(&self) -> &Lifecycle {
        const NONE: &Lifecycle = &Lifecycle { pre_normal: None, in_place_update: None, pre_delete: None };
        self.lifecycle.as_ref().unwrap_or(NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let of = |partition, unavailable, surge| {
            let set = SetSpec {
                replicas: 4,
                update: UpdateKind::Recreate,
                paused: false,
                partition,
                scatter: Vec::new(),
                max_unavailable: unavailable,
                max_surge: surge,
                scale_max_unavailable: None,
                pods_to_delete: BTreeSet::new(),
                exclude_preparing_delete: false,
                lifecycle: None,
                delete_hold: None,
            };
            (set.partition(), set.max_unavailable(), set.max_surge())
        };
        use Amount::{Count, Percent};
        assert_eq!(of(Percent(99), Percent(20), Count(0)), (3, 1, 0), "one of four pods can be updated");
        assert_eq!(of(Percent(100), Percent(20), Percent(20)), (4, 0, 1), "rounded down beside a surge");
        assert_eq!(of(Count(9), Count(0), Count(0)), (4, 1, 0), "with neither, nothing could be updated");
    }
}
