//! The revision in labels of pods: `<set>-<hash>`, or only the hash.

use podward_core::cloneset::keys::{REVISION_HASH, TEMPLATE_HASH};

/// The length limit of a label's value.
const LABEL_LIMIT: usize = 63;

/// Returns the hash in the name or the label of a revision: what follows the last `-`.
#[must_use]
pub(crate) fn short_hash(revision: &str) -> &str {
    revision.rsplit('-').next().unwrap_or(revision)
}

/// Returns true if both name the same revision of a set, in the long or the short form. No name is no revision.
#[must_use]
pub(crate) fn is_same_revision(one: &str, other: &str) -> bool {
    !one.is_empty() && short_hash(one) == short_hash(other)
}

/// Returns the labels of the pods of the revision with this name. A name that is too long for a label is shortened to
/// the hash.
#[must_use]
pub(crate) fn revision_labels(revision: &str) -> [(&'static str, &str); 2] {
    let hash = short_hash(revision);
    let name = if revision.len() <= LABEL_LIMIT { revision } else { hash };
    [(REVISION_HASH, name), (TEMPLATE_HASH, hash)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_the_hash() {
        assert_eq!(short_hash("web-a-5d4f"), "5d4f");
        assert_eq!(short_hash("5d4f"), "5d4f");
        assert!(is_same_revision("web-5d4f", "5d4f"));
        assert!(!is_same_revision("web-5d4f", "web-5d4g"));
        assert!(!is_same_revision("", ""));
    }

    #[test]
    fn a_long_name_is_no_label() {
        assert_eq!(revision_labels("web-5d4f"), [(REVISION_HASH, "web-5d4f"), (TEMPLATE_HASH, "5d4f")]);
        let long = format!("{}-5d4f", "w".repeat(60));
        assert_eq!(revision_labels(&long), [(REVISION_HASH, "5d4f"), (TEMPLATE_HASH, "5d4f")]);
    }
}
