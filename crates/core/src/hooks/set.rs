//! All hooks of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Hook, finalizer_of};

/// All hooks, to be asked which of them a pod concerns.
#[derive(Clone, Debug, Default)]
pub struct HookSet {
    hooks: BTreeMap<String, Arc<Hook>>,
    by_finalizer: BTreeMap<String, Arc<Hook>>,
}

/// There are no hooks.
pub(crate) static NO_HOOKS: HookSet = HookSet { hooks: BTreeMap::new(), by_finalizer: BTreeMap::new() };

impl HookSet {
    /// A set of these hooks; of two with the same name the later counts.
    #[must_use]
    pub fn new(hooks: impl IntoIterator<Item = Hook>) -> Self {
        let mut set = Self::default();
        hooks.into_iter().for_each(|hook| set.put(hook));
        set
    }

    /// Adds `hook`, in the place of the one with its name. The others cost nothing, however many there are.
    pub fn put(&mut self, hook: Hook) {
        let (name, hook) = (hook.name.clone(), Arc::new(hook));
        self.by_finalizer.insert(finalizer_of(&name), hook.clone());
        self.hooks.insert(name, hook);
    }

    /// Takes the hook `name` out.
    pub fn remove(&mut self, name: &str) {
        if self.hooks.remove(name).is_some() {
            self.by_finalizer.remove(&finalizer_of(name));
        }
    }

    /// The hook whose finalizer this is.
    #[must_use]
    pub fn owner_of(&self, finalizer: &str) -> Option<&Arc<Hook>> {
        self.by_finalizer.get(finalizer)
    }

    /// The hook `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Hook>> {
        self.hooks.get(name)
    }

    /// The hooks that a pod with these labels, in a namespace with those, concerns, by name. Whether it has opted in is the caller's
    /// to know.
    pub fn matching<'a>(
        &'a self,
        pod_labels: &'a BTreeMap<String, String>,
        namespace_labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Arc<Hook>> {
        self.hooks.values().filter(move |hook| hook.concerns(pod_labels, namespace_labels))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.hooks.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PostCheckRejection;
    use crate::hooks::{DeadlinePolicy, FailurePolicy, GateTiming, Phase, Selector};

    fn hook(name: &str, order: i32) -> Hook {
        Hook {
            name: name.to_owned(),
            pod_selector: Selector::everything(),
            namespace_selector: Selector::everything(),
            phases: vec![Phase::Prepare],
            operation_types: Vec::new(),
            order,
            deadline_nanoseconds: 1,
            deadline_policy: DeadlinePolicy::Hold,
            failure_policy: FailurePolicy::Fail,
            post_check_rejection: PostCheckRejection::Hold,
            prepare_timing: GateTiming::AfterGate,
            complete_timing: GateTiming::BeforeGate,
        }
    }

    #[test]
    fn a_set_that_was_changed_is_the_same_as_a_new_one() {
        let mut set = HookSet::new([hook("a", 1), hook("b", 1), hook("c", 1)]);
        set.put(hook("b", 2));
        set.remove("a");
        set.remove("never there");
        let names: Vec<_> = set.iter().map(|hook| (hook.name.as_str(), hook.order)).collect();
        assert_eq!(names, [("b", 2), ("c", 1)]);
        assert!(set.owner_of(&finalizer_of("a")).is_none());
        assert_eq!(set.owner_of(&finalizer_of("b")).map(|hook| hook.order), Some(2));
        assert_eq!(set.get("b").map(|hook| hook.order), Some(2));
    }
}
