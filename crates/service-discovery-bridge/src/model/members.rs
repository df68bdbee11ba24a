//! Which replica is responsible for a binding.

use sha2::{Digest, Sha256};

use super::binding::BindingKey;

/// Returns the member that is responsible for a binding: the one with the highest hash of both (rendezvous hashing). When
/// a member leaves, only its own bindings move. `None` if there is no member.
pub(crate) fn keeper_of<'m>(
    binding: &BindingKey,
    members: impl IntoIterator<Item = &'m str>,
) -> Option<&'m str> {
    members.into_iter().max_by_key(|member| Sha256::digest(format!("{member}\n{binding}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn bindings_are_shared_and_only_those_of_a_lost_member_move() {
        let key = |number: usize| BindingKey { namespace: "shop".to_owned(), name: format!("b{number}") };
        let mut share: BTreeMap<&str, usize> = BTreeMap::new();
        for number in 0..300 {
            let before = keeper_of(&key(number), ["a", "b", "c"]).unwrap();
            *share.entry(before).or_default() += 1;
            let after = keeper_of(&key(number), ["c", "a"]).unwrap();
            assert!(after == before || before == "b");
        }
        assert!(share.len() == 3 && share.values().all(|count| *count > 60), "{share:?}");
        assert_eq!(keeper_of(&key(0), []), None);
    }
}
