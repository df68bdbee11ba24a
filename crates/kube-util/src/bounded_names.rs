//! A limit for the values of a label that users choose.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The value of the label for all names beyond the limit.
const OTHERS: &str = "other";

/// The names that are values of a label. Further names are counted together as `other`.
#[derive(Debug)]
pub struct BoundedNames {
    most: usize,
    /// Names that always have a place.
    fixed: &'static [&'static str],
    names: Mutex<HashSet<String>>,
}

impl BoundedNames {
    /// Returns a set of at most `most` names.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self::with(&[], most)
    }

    /// Returns a set of at most `most` names, of which `fixed` are always members.
    #[must_use]
    pub fn with(fixed: &'static [&'static str], most: usize) -> Self {
        BoundedNames { most, fixed, names: Mutex::default() }
    }

    /// Returns the value of the label for `name`, which becomes a member if there is room.
    pub fn admit<'n>(&self, name: &'n str) -> &'n str {
        let mut names = self.names.lock();
        if self.fixed.contains(&name) || names.contains(name) {
            return name;
        }
        if self.fixed.len() + names.len() >= self.most {
            return OTHERS;
        }
        names.insert(name.to_owned());
        name
    }

    /// Returns the value of the label for `name`.
    pub fn label<'n>(&self, name: &'n str) -> &'n str {
        let is_member = self.fixed.contains(&name) || self.names.lock().contains(name);
        if is_member { name } else { OTHERS }
    }

    /// Removes `name`. Returns true if it was a member.
    pub fn remove(&self, name: &str) -> bool {
        self.names.lock().remove(name)
    }

    /// Removes all names that are not fixed.
    pub fn clear(&self) {
        self.names.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted_together_until_there_is_room() {
        let names = BoundedNames::with(&["delete"], 3);
        assert_eq!(
            ["a", "b", "c", "a", "delete"].map(|name| names.admit(name)),
            ["a", "b", OTHERS, "a", "delete"]
        );
        assert_eq!(["b", "c", "delete"].map(|name| names.label(name)), ["b", OTHERS, "delete"]);
        assert!(names.remove("a") && !names.remove("c") && !names.remove("delete"));
        assert_eq!(names.label("c"), OTHERS);
        assert_eq!(names.admit("c"), "c");
        names.clear();
        assert_eq!(["b", "delete"].map(|name| names.label(name)), [OTHERS, "delete"]);
    }
}
