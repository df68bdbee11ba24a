//! What the watches have brought: the hooks, and the labels of namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use podward_core::hooks::{Hook, HookSet};

use super::registered::Record;
use crate::cached_pod::CachedPod;

/// Labels of one object.
pub(super) type Labels = BTreeMap<String, String>;

/// Nothing is known before both first lists are there.
#[derive(Debug, Default)]
pub(super) struct Directory {
    records: BTreeMap<String, Record>,
    hooks: Option<Arc<HookSet>>,
    namespaces: Option<HashMap<String, Labels>>,
}

impl Directory {
    /// The hooks that `pod` concerns; `None` when that is not known.
    pub(super) fn hooks_for(&self, pod: &CachedPod) -> Option<Vec<Arc<Hook>>> {
        let hooks = self.hooks.as_ref()?;
        // A namespace that isn't there is one that the watch has yet to bring: pods live in namespaces.
        let namespace = self.namespaces.as_ref()?.get(&pod.key().namespace)?;
        Some(hooks.matching(pod.view().labels, namespace).cloned().collect())
    }

    /// All hooks, once they are known.
    pub(super) fn hooks(&self) -> Option<&Arc<HookSet>> {
        self.hooks.as_ref()
    }

    pub(super) fn record(&self, name: &str) -> Option<&Record> {
        self.records.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.records.keys()
    }

    /// Whether `hook` is for `pod`; `None` when that is not known.
    pub(super) fn concerns(&self, hook: &Hook, pod: &CachedPod) -> Option<bool> {
        let namespace = self.namespaces.as_ref()?.get(&pod.key().namespace)?;
        Some(hook.concerns(pod.view().labels, namespace))
    }

    /// Takes over one record, or the lack of it.
    pub(super) fn put(&mut self, name: &str, record: Option<Record>) {
        let before = match record {
            Some(record) => self.records.insert(name.to_owned(), record),
            None => self.records.remove(name),
        };
        let after = self.records.get(name).map(|record| &record.registered.hook);
        let Some(hooks) = &mut self.hooks else { return };
        if before.as_ref().map(|record| &record.registered.hook) == after {
            return;
        }
        // Only where somebody still looks at what was so far is it copied.
        let hooks = Arc::make_mut(hooks);
        match after {
            Some(hook) => hooks.put(hook.clone()),
            None => hooks.remove(name),
        }
    }

    /// From now on the hooks are known.
    pub(super) fn compile(&mut self) {
        let hooks = self.records.values().map(|record| record.registered.hook.clone());
        self.hooks = Some(Arc::new(HookSet::new(hooks)));
    }

    /// From now on the namespaces are known.
    pub(super) fn list_namespaces(&mut self, namespaces: HashMap<String, Labels>) {
        self.namespaces = Some(namespaces);
    }

    /// Takes over one namespace's labels, or the lack of them. Gives whether that makes other hooks be for its pods.
    pub(super) fn put_namespace(&mut self, name: &str, labels: Option<Labels>) -> bool {
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
