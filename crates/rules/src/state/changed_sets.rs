//! The rule sets to decide about again.

use std::collections::BTreeSet;

/// The rule sets of a namespace whose decisions may have changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChangedSets {
    /// These rule sets.
    Some(BTreeSet<String>),
    /// All rule sets of the namespace.
    All,
}

impl Default for ChangedSets {
    fn default() -> Self {
        ChangedSets::Some(BTreeSet::new())
    }
}
