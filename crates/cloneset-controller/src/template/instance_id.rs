//! The identities of pods in their set.

use std::collections::BTreeSet;

use super::safe_text::encode;

/// The length of a new identity.
const INSTANCE_ID_LENGTH: usize = 5;

/// The number of identities of this length.
const IDS: usize = 27_usize.pow(5);

/// Returns `count` identities for new pods: first those of `reusable`, then new ones that are not in `taken`. Fewer if
/// there are no more.
pub(crate) fn instance_ids(
    count: usize,
    reusable: &BTreeSet<String>,
    taken: &BTreeSet<String>,
    mut random: impl FnMut() -> u32,
) -> Vec<String> {
    let mut ids: Vec<String> = reusable.iter().take(count).cloned().collect();
    let mut used: BTreeSet<String> = taken.union(reusable).cloned().collect();
    while ids.len() < count {
        let start = u64::from(random());
        // From the random number on, so that a source that repeats itself comes to an end.
        let mut candidates = (start..).take(IDS).map(|it| encode(it, INSTANCE_ID_LENGTH));
        let Some(id) = candidates.find(|id| !used.contains(id)) else { break };
        used.insert(id.clone());
        ids.push(id);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn identities_are_new() {
        assert_eq!(encode(0, INSTANCE_ID_LENGTH), "bbbbb");
        let ids = instance_ids(3, &set(&[]), &set(&["bbbbb"]), || 0);
        assert_eq!(ids, ["cbbbb", "dbbbb", "fbbbb"], "a source that repeats itself");
        assert_eq!(instance_ids(0, &set(&["xxxxx"]), &set(&[]), || 0), Vec::<String>::new());
    }

    #[test]
    fn identities_with_claims_come_first() {
        let reusable = set(&["xxxxx", "zzzzz"]);
        assert_eq!(instance_ids(1, &reusable, &set(&[]), || 0), ["xxxxx"]);
        assert_eq!(instance_ids(3, &reusable, &set(&[]), || 0), ["xxxxx", "zzzzz", "bbbbb"]);
    }
}
