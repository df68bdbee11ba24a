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
        let hooks: BTreeMap<_, _> =
            hooks.into_iter().map(|hook| (hook.name.clone(), Arc::new(hook))).collect();
        let by_finalizer = hooks.iter().map(|(name, hook)| (finalizer_of(name), hook.clone())).collect();
        Self { hooks, by_finalizer }
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
        self.hooks.values().filter(move |hook| {
            hook.pod_selector.matches(pod_labels) && hook.namespace_selector.matches(namespace_labels)
        })
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.hooks.values()
    }
}
