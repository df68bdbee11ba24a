//! Which rule sets select a pod: the index finds those that a look at each of them would.

use std::collections::BTreeMap;
use std::sync::Arc;

use podward_core::hooks::Selector;
use podward_core::rules::{RuleIndex, RuleSet};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

use crate::rule_model::Labels;

fn labels(entries: &[(&str, &str)]) -> Labels {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn selector(entries: &[(&str, &str)]) -> Selector {
    Selector::new(labels(entries), []).unwrap()
}

fn set(name: &str, selector: Option<Selector>) -> RuleSet {
    RuleSet { namespace: "shop".to_owned(), name: name.to_owned(), selector, ..RuleSet::default() }
}

#[test]
fn pods_are_found_by_their_labels() {
    let mut index = RuleIndex::default();
    let with = |name: &str, selector: Option<Selector>| Arc::new(set(name, selector));
    index.put(with("all", Some(Selector::everything())));
    index.put(with("none", None));
    index.put(with("web", Some(selector(&[("app", "web"), ("tier", "front")]))));
    let any = Selector::new(
        BTreeMap::new(),
        [("app".to_owned(), "In".to_owned(), vec!["web".to_owned(), "api".to_owned()])],
    );
    index.put(with("any", Some(any.unwrap())));
    index.put(Arc::new(RuleSet {
        namespace: "other".to_owned(),
        ..set("foreign", Some(Selector::everything()))
    }));
    let found = |index: &RuleIndex, entries: &[(&str, &str)]| {
        let labels = labels(entries);
        index.selecting("shop", &labels).iter().map(|set| set.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found(&index, &[]), "all");
    assert_eq!(found(&index, &[("app", "web")]), "all any");
    assert_eq!(found(&index, &[("app", "web"), ("tier", "front")]), "all any web");
    index.put(with("web", Some(selector(&[("app", "db")]))));
    assert_eq!(found(&index, &[("app", "web"), ("tier", "front")]), "all any", "it was changed");
    assert_eq!(found(&index, &[("app", "db")]), "all web");
    assert!(index.remove("shop", "all").is_some() && index.remove("shop", "all").is_none());
    assert_eq!(found(&index, &[("app", "db")]), "web");
    assert!(index.selecting("nowhere", &labels(&[])).is_empty());
    assert_eq!(index.of_namespace("shop").count(), 3);
    assert!(index.get("shop", "none").is_some() && index.get("other", "none").is_none());
}

const KEYS: [&str; 4] = ["app", "tier", "team", "shard"];
const VALUES: [&str; 3] = ["a", "b", "c"];

fn text<const N: usize>(of: [&'static str; N]) -> impl Strategy<Value = String> + Clone {
    select(of.to_vec()).prop_map(ToOwned::to_owned)
}

fn pod() -> impl Strategy<Value = Labels> {
    btree_map(text(KEYS), text(VALUES), 0..=KEYS.len())
}

/// Of any kind; those that could match nothing are not stored either.
fn any_selector() -> impl Strategy<Value = Option<Selector>> {
    let expression = (text(KEYS), text(["In", "NotIn", "Exists", "DoesNotExist"]), vec(text(VALUES), 1..3))
        .prop_map(|(key, operator, values)| {
            let values = if operator.ends_with("In") { values } else { Vec::new() };
            (key, operator, values)
        });
    let selector = (btree_map(text(KEYS), text(VALUES), 0..2), vec(expression, 0..3));
    prop::option::weighted(
        0.95,
        selector.prop_filter_map("matches nothing", |(equal, expressions)| {
            Selector::new(equal, expressions).ok()
        }),
    )
}

#[derive(Clone, Debug)]
enum Change {
    Put(usize, Option<Selector>),
    Remove(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..12usize, any_selector()).prop_map(|(number, selector)| Change::Put(number, selector)),
        1 => (0..12usize).prop_map(Change::Remove),
    ]
}

proptest! {
    #[test]
    fn the_index_finds_the_same_rules_as_a_linear_search(changes in vec(change(), 0..40), pods in vec(pod(), 1..8)) {
        let mut index = RuleIndex::default();
        let mut all: BTreeMap<String, RuleSet> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(number, selector) => {
                    let set = set(&format!("set-{number:02}"), selector);
                    index.put(Arc::new(set.clone()));
                    all.insert(set.name.clone(), set);
                }
                Change::Remove(number) => {
                    let name = format!("set-{number:02}");
                    let taken = index.remove("shop", &name);
                    prop_assert_eq!(taken.as_deref().cloned(), all.remove(&name));
                }
            }
            for pod in &pods {
                let found: Vec<&str> = index.selecting("shop", pod).iter().map(|set| set.name.as_str()).collect();
                let wanted: Vec<&str> =
                    all.values().filter(|set| set.selects(pod)).map(|set| set.name.as_str()).collect();
                prop_assert_eq!(found, wanted);
            }
            prop_assert!(index.of_namespace("shop").map(AsRef::as_ref).eq(all.values()));
        }
    }
}
