//! The hooks of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::hook_keys::hook_finalizer;

use super::hook::Hook;

/// All hooks of a cluster, indexed for the lookup by pod.
#[derive(Clone, Debug, Default)]
pub struct HookSet {
    hooks: BTreeMap<String, Arc<Hook>>,
    by_finalizer: BTreeMap<String, Arc<Hook>>,
}

/// The empty set.
pub(crate) static NO_HOOKS: HookSet = HookSet { hooks: BTreeMap::new(), by_finalizer: BTreeMap::new() };

impl HookSet {
    /// Returns a set of these hooks. Of two hooks with the same name the later one wins.
    #[must_use]
    pub fn new(hooks: impl IntoIterator<Item = Hook>) -> Self {
        let mut set = Self::default();
        hooks.into_iter().for_each(|hook| set.put(hook));
        set
    }

    /// Adds `hook` and replaces a hook with the same name.
    pub fn put(&mut self, hook: Hook) {
        let (name, hook) = (hook.name.clone(), Arc::new(hook));
        self.by_finalizer.insert(hook_finalizer(&name), hook.clone());
        self.hooks.insert(name, hook);
    }

    /// Removes the hook `name`.
    pub fn remove(&mut self, name: &str) {
        if self.hooks.remove(name).is_some() {
            self.by_finalizer.remove(&hook_finalizer(name));
        }
    }

    /// Returns the hook with this finalizer.
    #[must_use]
    pub fn owner_of(&self, finalizer: &str) -> Option<&Arc<Hook>> {
        self.by_finalizer.get(finalizer)
    }

    /// Returns the hook `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Hook>> {
        self.hooks.get(name)
    }

    /// Returns the hooks that apply to a pod with these labels in a namespace with those labels, by name. The caller
    /// checks whether the pod has opted in.
    pub fn matching<'a>(
        &'a self,
        pod_labels: &'a BTreeMap<String, String>,
        namespace_labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Arc<Hook>> {
        self.hooks.values().filter(move |hook| hook.concerns(pod_labels, namespace_labels))
    }

    /// Returns all hooks by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.hooks.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PostCheckRejection;
    use crate::hooks::{DeadlinePolicy, FailurePolicy, GateTiming, HookPhase, Selector};

    fn hook(name: &str, order: i32) -> Hook {
        Hook {
            name: name.to_owned(),
            pod_selector: Selector::everything(),
            namespace_selector: Selector::everything(),
            phases: vec![HookPhase::Prepare],
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
        assert!(set.owner_of(&hook_finalizer("a")).is_none());
        assert_eq!(set.owner_of(&hook_finalizer("b")).map(|hook| hook.order), Some(2));
        assert_eq!(set.get("b").map(|hook| hook.order), Some(2));
    }
}
