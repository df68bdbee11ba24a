//! The identities of new pods.

use std::collections::BTreeSet;

use kube::ResourceExt;

use crate::own_deletions::OwnDeletions;
use crate::pod::Pod;
use crate::template::{KeptIds, id, instance_ids};

/// The identities of new pods.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Identities<'a> {
    /// Those of pods that can be created now.
    pub(super) ids: Vec<String>,
    /// Pods that have ended, and whose identities new pods get when they are deleted.
    pub(super) ended: Vec<&'a Pod>,
    /// Terminating pods whose identities new pods get when they are gone.
    pub(super) terminating: Vec<&'a Pod>,
}

/// Returns the identities of `count` new pods: first the free ones of `kept`, so that their claims are used again; then
/// those of pods that end, and have to be gone before, as a pod has the name of its identity. The others are new ones that
/// are not in `taken`. Claims of `own` are not used again.
pub(super) fn identities<'a>(
    count: usize,
    kept: KeptIds<'a>,
    own: &OwnDeletions,
    taken: &BTreeSet<String>,
    random: impl FnMut() -> u32,
) -> Identities<'a> {
    let KeptIds { mut free, mut occupied } = kept;
    free.retain(|id| !own.contains(id));
    occupied.retain(|pod| id(pod.labels()).is_some_and(|id| !own.contains(id)));
    let is_terminating = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    occupied.sort_by_key(|pod| (is_terminating(pod), pod.name_any()));
    occupied.truncate(count.saturating_sub(free.len()));
    let ids = instance_ids(count.saturating_sub(occupied.len()), &free, taken, random);
    let (terminating, ended) = occupied.into_iter().partition(is_terminating);
    Identities { ids, ended, terminating }
}

impl Identities<'_> {
    /// Returns what new pods wait for, for people. `None` if none waits.
    pub(super) fn waits(&self) -> Option<String> {
        let first = self.terminating.first()?;
        let others = match self.terminating.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        Some(format!(
            "pod {}{others} is terminating; the pod that replaces it gets its identity and its PersistentVolumeClaims, and \
             is created when it is gone",
            first.name_any()
        ))
    }
}

#[cfg(test)]
mod tests {
    use podward_core::cloneset::keys::INSTANCE_ID;
    use serde_json::json;

    use super::*;

    fn pod(id: &str, terminates: bool) -> Pod {
        let mut metadata = json!({"name": format!("web-{id}"), "labels": {INSTANCE_ID: id}});
        if terminates {
            metadata["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_new_pod_waits_for_the_one_whose_claims_it_gets() {
        let (terminating, ended) = (pod("aaaaa", true), pod("zzzzz", false));
        let taken = ids(&["aaaaa", "zzzzz"]);
        let of = |count| {
            let kept = KeptIds { free: ids(&["fffff"]), occupied: vec![&terminating, &ended] };
            identities(count, kept, &OwnDeletions::default(), &taken, || 0)
        };
        let just = |ids: &[&str]| ids.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(of(0), Identities::default());
        assert_eq!(of(1), Identities { ids: just(&["fffff"]), ..Identities::default() });
        assert_eq!(of(2), Identities { ids: just(&["fffff"]), ended: vec![&ended], terminating: vec![] });
        let all = of(4);
        let expected = just(&["fffff", "bbbbb"]);
        assert_eq!(all, Identities { ids: expected, ended: vec![&ended], terminating: vec![&terminating] });
        assert_eq!(
            all.waits().unwrap(),
            "pod web-aaaaa is terminating; the pod that replaces it gets its identity and its PersistentVolumeClaims, and is \
             created when it is gone"
        );
    }

    #[test]
    fn claims_that_go_with_their_pods_are_not_used_again() {
        let terminating = pod("aaaaa", true);
        let mut own = OwnDeletions::default();
        own.add(&terminating);
        own.add(&pod("fffff", true));
        let kept = KeptIds { free: ids(&["fffff"]), occupied: vec![&terminating] };
        let found = identities(1, kept, &own, &ids(&["aaaaa"]), || 0);
        assert_eq!(found, Identities { ids: vec!["bbbbb".to_owned()], ..Identities::default() });
        assert_eq!(found.waits(), None);
    }
}
