//! The count of the pods of an owner that are deleted together.

use crate::owners::OwnerCounts;

/// A count that the pods share which ask at the same time.
pub(crate) struct JointCount {
    pub(crate) counts: OwnerCounts,
    /// True if one of these pods lets all of them go.
    pub(crate) is_decided: bool,
}
