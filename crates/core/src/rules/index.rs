//! Which rule sets select a pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::RuleSet;

/// All rule sets, by namespace, and there by a label that all pods have which they select. What a pod costs grows with its labels and with
/// the rule sets that want one of these labels, not with the others.
#[derive(Clone, Debug, Default)]
pub struct RuleIndex {
    namespaces: HashMap<String, Namespace>,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    sets: BTreeMap<String, Arc<RuleSet>>,
    /// By key, then value, of the label.
    by_label: HashMap<String, HashMap<String, BTreeSet<String>>>,
    /// Those that can't be told by a label.
    others: BTreeSet<String>,
}

impl RuleIndex {
    /// Puts `set` in, in the place of the one with its name.
    pub fn put(&mut self, set: Arc<RuleSet>) {
        self.remove(&set.namespace, &set.name);
        let namespace = self.namespaces.entry(set.namespace.clone()).or_default();
        let name = set.name.clone();
        match set.selector.as_ref().map(|selector| selector.anchor()) {
            None => {}
            Some(None) => {
                namespace.others.insert(name.clone());
            }
            Some(Some((key, values))) => {
                let by_value = namespace.by_label.entry(key.to_owned()).or_default();
                for value in values {
                    by_value.entry(value.clone()).or_default().insert(name.clone());
                }
            }
        }
        namespace.sets.insert(name, set);
    }

    /// Takes the rule set out; gives it, if it was there.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<RuleSet>> {
        let found = self.namespaces.get_mut(namespace)?;
        let set = found.sets.remove(name)?;
        found.others.remove(name);
        if let Some((key, values)) = set.selector.as_ref().and_then(|selector| selector.anchor())
            && let Some(by_value) = found.by_label.get_mut(key)
        {
            for value in values {
                if let Some(names) = by_value.get_mut(value) {
                    names.remove(name);
                }
            }
            by_value.retain(|_, names| !names.is_empty());
            if by_value.is_empty() {
                found.by_label.remove(key);
            }
        }
        if found.sets.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(set)
    }

    /// The rule set `name`.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<RuleSet>> {
        self.namespaces.get(namespace)?.sets.get(name)
    }

    /// The rule sets of `namespace`, by name.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<RuleSet>> {
        self.namespaces.get(namespace).into_iter().flat_map(|found| found.sets.values())
    }

    /// The rule sets that select a pod of `namespace` with these labels, by name.
    #[must_use]
    pub fn selecting(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<&Arc<RuleSet>> {
        let Some(found) = self.namespaces.get(namespace) else { return Vec::new() };
        let by_label = labels.iter().filter_map(|(key, value)| found.by_label.get(key)?.get(value)).flatten();
        let names: BTreeSet<&String> = by_label.chain(&found.others).collect();
        let sets = names.into_iter().filter_map(|name| found.sets.get(name));
        sets.filter(|set| set.selects(labels)).collect()
    }
}
