//! The hooks and the labels of namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podward_core::hooks::{Hook, HookSet};

use crate::registration::record::HookRecord;
use podward_kube_util::CachedPod;

/// NamespaceLabels of one object.
pub(crate) type NamespaceLabels = BTreeMap<String, String>;

/// Knows nothing before both watches have listed their objects.
#[derive(Debug, Default)]
pub(crate) struct HookDirectory {
    records: BTreeMap<String, HookRecord>,
    hooks: Option<Arc<HookSet>>,
    namespaces: Option<HashMap<String, NamespaceLabels>>,
}

impl HookDirectory {
    /// Returns the hooks that are responsible for `pod`; `None` if that is not known.
    pub(crate) fn hooks_for(&self, pod: &CachedPod) -> Option<Vec<Arc<Hook>>> {
        let hooks = self.hooks.as_ref()?;
        // A missing namespace exists, as the pod is in it. The watch has not returned it yet.
        let namespace = self.namespaces.as_ref()?.get(&pod.key().namespace)?;
        Some(hooks.matching(pod.view().labels, namespace).cloned().collect())
    }

    /// Returns all hooks; `None` before they are listed.
    pub(crate) fn hooks(&self) -> Option<&Arc<HookSet>> {
        self.hooks.as_ref()
    }

    pub(crate) fn record(&self, name: &str) -> Option<&HookRecord> {
        self.records.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.records.keys()
    }

    /// Returns true if `hook` is responsible for `pod`; `None` if that is not known.
    pub(crate) fn concerns(&self, hook: &Hook, pod: &CachedPod) -> Option<bool> {
        let namespace = self.namespaces.as_ref()?.get(&pod.key().namespace)?;
        Some(hook.concerns(pod.view().labels, namespace))
    }

    /// Stores or removes one record.
    pub(crate) fn put(&mut self, name: &str, record: Option<HookRecord>) {
        let before = match record {
            Some(record) => self.records.insert(name.to_owned(), record),
            None => self.records.remove(name),
        };
        let after = self.records.get(name).map(|record| &record.registered.hook);
        let Some(hooks) = &mut self.hooks else { return };
        if before.as_ref().map(|record| &record.registered.hook) == after {
            return;
        }
        // Copied only if the previous set is still in use.
        let hooks = Arc::make_mut(hooks);
        match after {
            Some(hook) => hooks.put(hook.clone()),
            None => hooks.remove(name),
        }
    }

    /// Makes the hooks known after the first list.
    pub(crate) fn compile(&mut self) {
        let hooks = self.records.values().map(|record| record.registered.hook.clone());
        self.hooks = Some(Arc::new(HookSet::new(hooks)));
    }

    /// Stores the list of namespaces.
    pub(crate) fn list_namespaces(&mut self, namespaces: HashMap<String, NamespaceLabels>) {
        self.namespaces = Some(namespaces);
    }

    /// Returns the number of known namespaces.
    pub(crate) fn count_namespaces(&self) -> usize {
        self.namespaces.as_ref().map_or(0, HashMap::len)
    }

    /// Stores or removes the labels of a namespace. Returns true if other hooks are responsible for its pods now.
    pub(crate) fn put_namespace(&mut self, name: &str, labels: Option<NamespaceLabels>) -> bool {
        let Some(namespaces) = &mut self.namespaces else { return false };
        let before = match labels {
            Some(labels) => namespaces.insert(name.to_owned(), labels),
            None => namespaces.remove(name),
        };
        let Some(hooks) = &self.hooks else { return false };
        match (before, namespaces.get(name)) {
            (Some(before), Some(after)) => hooks.iter().any(|hook| {
                hook.namespace_selector.matches(&before) != hook.namespace_selector.matches(after)
            }),
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}
