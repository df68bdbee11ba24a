//! The pod that an eviction means. An eviction contains only a name, which another pod may have by now.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::pod::Pod;
use crate::model::time::UnixNanos;

/// The time for which a repeated eviction by name counts as one of the pod that the caller was told to wait for.
/// Clients that repeat evictions do so every few seconds, and at most every minute.
pub const REPEATED_WITHIN: Duration = Duration::from_secs(120);
/// The maximum number of remembered evictions.
const MOST_REMEMBERED: usize = 4096;

/// The result of comparing the preconditions of an eviction with the stored pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionTarget {
    /// The preconditions hold, or there are none.
    ThisPod,
    /// The eviction means another pod, or an earlier version of this pod. The API server answers it with 409.
    Other,
    /// The eviction means a version that the pod does not have yet. The API server could find it when it compares.
    LaterVersion,
}

/// Compares the preconditions `uid` and `resource_version` of an eviction with the stored `pod`. As for the API server,
/// an empty text is no precondition.
#[must_use]
pub fn eviction_target(pod: &Pod, uid: Option<&str>, resource_version: Option<&str>) -> EvictionTarget {
    let stored = &pod.metadata;
    let is_set = |text: &&str| !text.is_empty();
    if uid.filter(is_set).is_some_and(|uid| uid != stored.uid) {
        return EvictionTarget::Other;
    }
    let number = |version: &str| version.parse::<u64>().ok();
    match resource_version.filter(is_set) {
        None => EvictionTarget::ThisPod,
        Some(version) if version == stored.resource_version => EvictionTarget::ThisPod,
        Some(version) => match (number(version), number(&stored.resource_version)) {
            (Some(wanted), Some(stored)) if wanted <= stored => EvictionTarget::Other,
            _ => EvictionTarget::LaterVersion,
        },
    }
}

/// Who evicts which name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictionCaller {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// The name of the user.
    pub user: String,
}

/// The evictions by name that are recorded, and that their callers were told to repeat.
///
/// A caller repeats the eviction until it is answered with success or 404. When the pod is evicted in between, a
/// StatefulSet creates another pod with the same name. The repeated eviction does not mean that pod.
#[derive(Clone, Debug, Default)]
pub struct HeldEvictions {
    /// The UID of the pod, and the time of the last answer.
    held: BTreeMap<EvictionCaller, (String, UnixNanos)>,
}

impl HeldEvictions {
    /// Remembers that `caller` was told at `now` that its eviction of the pod `uid` is recorded.
    pub fn remember(&mut self, caller: EvictionCaller, uid: &str, now: UnixNanos) {
        if self.held.len() >= MOST_REMEMBERED && !self.held.contains_key(&caller) {
            self.held.retain(|_, (_, at)| now.since(*at) < REPEATED_WITHIN);
            if self.held.len() >= MOST_REMEMBERED {
                let oldest =
                    self.held.iter().min_by_key(|(_, (_, at))| *at).map(|(caller, _)| caller.clone());
                oldest.map(|oldest| self.held.remove(&oldest));
            }
        }
        self.held.insert(caller, (uid.to_owned(), now));
    }

    /// Returns the UID of the pod that `caller` means with its eviction at `now`, if it is not the pod `uid`. Returns
    /// `None` if no other pod is remembered. The answer does not extend the time.
    #[must_use]
    pub fn meant(&self, caller: &EvictionCaller, uid: &str, now: UnixNanos) -> Option<&str> {
        let (held, at) = self.held.get(caller)?;
        (held != uid && now.since(*at) < REPEATED_WITHIN).then_some(held)
    }
}
