//! The bindings that have series of their own. Users make bindings, so their number is limited.

use std::collections::HashMap;

use crate::model::BindingKey;

/// The largest number of bindings with series of their own. Others are shown when there is room.
pub(super) const MAX_BINDINGS: usize = 500;

/// How severe the problem of a binding is, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// There is no problem.
    None,
    /// The binding is invalid.
    Rejected,
    /// The registry is unreachable, or does not show what it should.
    Registry,
}

/// The bindings that are shown.
#[derive(Debug, Default)]
pub(super) struct ShownBindings(HashMap<BindingKey, Severity>);

impl ShownBindings {
    /// Adds or changes a binding. Returns whether it is shown, and the binding with a smaller problem that is not shown any
    /// more for it.
    pub(super) fn put(&mut self, key: &BindingKey, severity: Severity) -> (bool, Option<BindingKey>) {
        if self.0.len() < MAX_BINDINGS || self.0.contains_key(key) {
            self.0.insert(key.clone(), severity);
            return (true, None);
        }
        let least = self.0.iter().min_by_key(|(_, severity)| **severity);
        let Some(hidden) = least.filter(|(_, least)| **least < severity).map(|(key, _)| key.clone()) else {
            return (false, None);
        };
        self.0.remove(&hidden);
        self.0.insert(key.clone(), severity);
        (true, Some(hidden))
    }

    /// Removes a binding.
    pub(super) fn remove(&mut self, key: &BindingKey) {
        self.0.remove(key);
    }
}
