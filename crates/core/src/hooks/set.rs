//! All hooks of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Hook;

/// All hooks, to be asked which of them a pod concerns.
#[derive(Clone, Debug, Default)]
pub struct HookSet {
    hooks: BTreeMap<String, Arc<Hook>>,
}

impl HookSet {
    /// A set of these hooks; of two with the same name the later counts.
    #[must_use]
    pub fn new(hooks: impl IntoIterator<Item = Hook>) -> Self {
        Self { hooks: hooks.into_iter().map(|hook| (hook.name.clone(), Arc::new(hook))).collect() }
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
