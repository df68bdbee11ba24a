//! The index of rule sets by the labels that they select.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::rule_set::RuleSet;
use crate::hooks::Anchor;

/// All rule sets by namespace, and in a namespace by a label that every selected pod has: by key and value, or by key
/// alone for `Exists`. Of several such labels the index uses the one with the fewest rule sets so far, so that a label
/// which all pods have (`app=web` beside `shard=7`) does not lead to all rule sets.
///
/// The cost of a lookup grows with the labels of the pod and the rule sets that are found by one of them. A rule set
/// without such a label (`NotIn`, `DoesNotExist`, or an empty selector) is compared with every pod of its namespace.
/// This is close to the minimum: such a rule set selects most pods.
#[derive(Clone, Debug, Default)]
pub struct RuleIndex {
    namespaces: HashMap<String, Namespace>,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    sets: BTreeMap<String, Entry>,
    by_key: HashMap<String, OfKey>,
    /// The rule sets that cannot be found by a label.
    others: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Entry {
    set: Arc<RuleSet>,
    /// The index of the label among the selector's anchors.
    anchor: Option<usize>,
}

/// The names of rule sets that are found by a label with this key.
#[derive(Clone, Debug, Default)]
struct OfKey {
    by_value: HashMap<String, BTreeSet<String>>,
    any_value: BTreeSet<String>,
}

impl RuleIndex {
    /// Adds `set` and replaces a rule set with the same name.
    pub fn put(&mut self, set: Arc<RuleSet>) {
        self.remove(&set.namespace, &set.name);
        let namespace = self.namespaces.entry(set.namespace.clone()).or_default();
        let anchors = set.selector.iter().flat_map(|selector| selector.anchors()).enumerate();
        let found = anchors.min_by_key(|(_, anchor)| (namespace.crowd(anchor), anchor.values.is_none()));
        match &found {
            Some((_, anchor)) => namespace.insert(anchor, &set.name),
            None if set.selector.is_some() => drop(namespace.others.insert(set.name.clone())),
            None => {}
        }
        let anchor = found.map(|(place, _)| place);
        namespace.sets.insert(set.name.clone(), Entry { set, anchor });
    }

    /// Removes and returns the rule set.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<RuleSet>> {
        let found = self.namespaces.get_mut(namespace)?;
        let Entry { set, anchor } = found.sets.remove(name)?;
        match anchor.and_then(|place| set.selector.as_ref()?.anchors().nth(place)) {
            Some(anchor) => found.take_out(&anchor, name),
            None => drop(found.others.remove(name)),
        }
        if found.sets.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(set)
    }

    /// Returns the rule set `name`.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<RuleSet>> {
        Some(&self.namespaces.get(namespace)?.sets.get(name)?.set)
    }

    /// Returns the rule sets of `namespace` by name.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<RuleSet>> {
        self.namespaces
            .get(namespace)
            .into_iter()
            .flat_map(|found| found.sets.values().map(|entry| &entry.set))
    }

    /// Returns the rule sets that select a pod of `namespace` with these labels, by name.
    #[must_use]
    pub fn selecting(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<&Arc<RuleSet>> {
        let Some(found) = self.namespaces.get(namespace) else { return Vec::new() };
        let names = found.candidates(labels).into_iter();
        let sets = names.filter_map(|name| found.sets.get(name)).map(|entry| &entry.set);
        sets.filter(|set| set.selects(labels)).collect()
    }
}

impl Namespace {
    /// Returns the names of the rule sets to compare with these labels.
    fn candidates(&self, labels: &BTreeMap<String, String>) -> BTreeSet<&String> {
        let by_label = labels.iter().filter_map(|(key, value)| Some((self.by_key.get(key)?, value)));
        let names = by_label.flat_map(|(of_key, value)| {
            of_key.by_value.get(value).into_iter().flatten().chain(&of_key.any_value)
        });
        names.chain(&self.others).collect()
    }

    /// Returns the number of rule sets under the label, whatever its value is.
    fn crowd(&self, anchor: &Anchor<'_>) -> usize {
        let Some(of_key) = self.by_key.get(anchor.key) else { return 0 };
        match anchor.values {
            None => of_key.any_value.len(),
            Some(values) => values
                .iter()
                .filter_map(|value| of_key.by_value.get(value))
                .map(BTreeSet::len)
                .max()
                .unwrap_or(0),
        }
    }

    fn insert(&mut self, anchor: &Anchor<'_>, name: &str) {
        let OfKey { by_value, any_value } = self.by_key.entry(anchor.key.to_owned()).or_default();
        match anchor.values {
            None => drop(any_value.insert(name.to_owned())),
            Some(values) => values.iter().for_each(|value| {
                by_value.entry(value.clone()).or_default().insert(name.to_owned());
            }),
        }
    }

    fn take_out(&mut self, anchor: &Anchor<'_>, name: &str) {
        let Some(OfKey { by_value, any_value }) = self.by_key.get_mut(anchor.key) else { return };
        match anchor.values {
            None => drop(any_value.remove(name)),
            Some(values) => {
                for value in values {
                    if let Some(names) = by_value.get_mut(value) {
                        names.remove(name);
                        if names.is_empty() {
                            by_value.remove(value);
                        }
                    }
                }
            }
        }
        if by_value.is_empty() && any_value.is_empty() {
            self.by_key.remove(anchor.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::Selector;

    fn labels(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Builds 5,000 rule sets with the selector that `of` returns, and one that selects `app=web`.
    fn index(of: impl Fn(&str) -> (BTreeMap<String, String>, Vec<String>)) -> RuleIndex {
        let mut index = RuleIndex::default();
        let mut put = |name: &str, equal: BTreeMap<String, String>, exists: Vec<String>| {
            let exists = exists.into_iter().map(|key| (key, "Exists".to_owned(), Vec::new()));
            let selector = Some(Selector::new(equal, exists).unwrap());
            let set = RuleSet {
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                selector,
                ..RuleSet::default()
            };
            index.put(Arc::new(set));
        };
        for number in 0..5000 {
            let (equal, exists) = of(&number.to_string());
            put(&format!("other-{number}"), equal, exists);
        }
        put("own", labels(&[("app", "web")]), Vec::new());
        index
    }

    #[test]
    fn what_does_not_select_a_pod_is_not_tried() {
        let pod = labels(&[("app", "web"), ("tier", "front"), ("team", "a")]);
        let another_value = index(|number| (labels(&[("app", number)]), Vec::new()));
        let another_key = index(|number| (BTreeMap::new(), vec![format!("app-{number}")]));
        let one_more_value = index(|number| (labels(&[("app", "web"), ("shard", number)]), Vec::new()));
        let one_more_key = index(|number| (labels(&[("app", "web")]), vec![format!("app-{number}")]));
        let two_keys = index(|number| (BTreeMap::new(), vec!["app".to_owned(), format!("app-{number}")]));
        for index in [another_value, another_key, one_more_value, one_more_key, two_keys] {
            let tried = index.namespaces["shop"].candidates(&pod);
            assert!(tried.len() <= 2, "{}", tried.len());
            let found: Vec<&str> =
                index.selecting("shop", &pod).iter().map(|set| set.name.as_str()).collect();
            assert_eq!(found, ["own"]);
        }
    }

    #[test]
    fn nothing_is_left_of_what_was_taken_out() {
        let mut index =
            index(|number| (labels(&[("app", "web"), ("shard", number)]), vec![format!("a-{number}")]));
        let names: Vec<String> = index.of_namespace("shop").map(|set| set.name.clone()).collect();
        names[1..].iter().for_each(|name| drop(index.remove("shop", name).unwrap()));
        let left = &index.namespaces["shop"];
        assert_eq!((left.sets.len(), left.by_key.len()), (1, 1));
        index.remove("shop", &names[0]);
        assert!(index.namespaces.is_empty());
    }
}
