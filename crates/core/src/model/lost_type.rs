//! The type of operations whose type label is lost.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// The permissions of a pod among which is that of the operations whose type label is lost. Such an operation claims no
/// permission, so the answer is the same for each of them.
#[derive(Clone, Debug)]
pub(crate) struct LostType<'a> {
    /// The permissions that no operation with a known type claims.
    unclaimed: BTreeSet<Cow<'a, str>>,
    /// The permission of a pod that has only one.
    only: Option<Cow<'a, str>>,
}

impl<'a> LostType<'a> {
    /// `known` are the types of the operations that have one.
    pub(crate) fn new<'k>(
        permissions: &BTreeSet<Cow<'a, str>>,
        known: impl Iterator<Item = &'k str>,
    ) -> Self {
        let only = permissions.first().filter(|_| permissions.len() == 1).cloned();
        let mut lost = LostType { unclaimed: permissions.clone(), only };
        known.for_each(|known| lost.claim(known));
        lost
    }

    /// Removes the permission that an operation of the type `known` claims.
    pub(crate) fn claim(&mut self, known: &str) {
        self.unclaimed.remove(known);
    }

    /// Returns the type: the only permission that no operation claims, or the only permission. Returns `None` when the
    /// type cannot be determined.
    pub(crate) fn get(&self) -> Option<&Cow<'a, str>> {
        let mut unclaimed = self.unclaimed.iter();
        match (unclaimed.next(), unclaimed.next()) {
            (Some(found), None) => Some(found),
            (None, None) => self.only.as_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_permission_that_is_left_is_the_type() {
        let found = |permissions: &[&'static str], known: &[&str]| {
            let permissions = permissions.iter().map(|name| Cow::Borrowed(*name)).collect();
            LostType::new(&permissions, known.iter().copied()).get().cloned()
        };
        assert_eq!(found(&["restart", "update"], &["restart"]).as_deref(), Some("update"));
        assert_eq!(found(&["update"], &["update"]).as_deref(), Some("update"), "two of one type");
        assert_eq!(found(&["update"], &["other"]).as_deref(), Some("update"));
        assert_eq!(found(&["restart", "update"], &[]), None);
        assert_eq!(found(&["restart", "update"], &["restart", "update"]), None);
        assert_eq!(found(&[], &["update"]), None);
    }
}
