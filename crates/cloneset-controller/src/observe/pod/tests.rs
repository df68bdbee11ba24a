//! What is seen of the pods of a set.

use serde_json::json;

use super::*;
use crate::template::{NewRevision, Owner, WantedRevision, wanted_revision};
use crate::test_api::set;

/// A set with this type of updates, image and size of volumes.
fn with(update: &str, image: &str, size: &str) -> CloneSet {
    let claim = json!({
        "metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}},
    });
    set(json!({
        "updateStrategy": {"type": update},
        "volumeClaimTemplates": [claim],
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        },
    }))
}

fn revision(set: &CloneSet) -> ControllerRevision {
    let none: [ControllerRevision; 0] = [];
    let new = NewRevision {
        set: &Owner::of(set),
        annotations: &BTreeMap::new(),
        template: &set.spec.template,
        claim_templates: &set.spec.volume_claim_templates,
        collision_count: 0,
    };
    match wanted_revision(&none, &new).unwrap() {
        WantedRevision::Create(revision) => *revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_claim_templates_recreate_pods_if_that_is_possible() {
    let is_in_place = |update: &str, size: &str, image: &str| {
        let (old, new) = (with(update, "web:1", "1Gi"), with(update, image, size));
        in_place(&revision(&old), &revision(&new), &new).is_some()
    };
    assert!(is_in_place("InPlaceIfPossible", "1Gi", "web:2"));
    assert!(!is_in_place("InPlaceIfPossible", "2Gi", "web:2"));
    assert!(is_in_place("InPlaceOnly", "2Gi", "web:2"), "pods keep their volumes");
}

#[test]
fn pods_without_an_ordered_key_are_updated_first() {
    let strategy =
        serde_json::from_value(json!({"orderPriority": [{"orderedKey": "a"}, {"orderedKey": "b"}]}));
    let strategy: PriorityStrategy = strategy.unwrap();
    let mut pods = [
        ("b", "x-7"),
        ("a", "none"),
        ("a", "x-2"),
        ("a", "x-4294967296"),
        ("a", "x-18446744073709551616"),
        ("c", "1"),
    ];
    pods.sort_by_key(|(key, value)| {
        rank(Some(&strategy), &BTreeMap::from([((*key).to_owned(), (*value).to_owned())]))
    });
    // A number that is too large is none.
    let order = [
        ("c", "1"),
        ("a", "x-4294967296"),
        ("a", "x-2"),
        ("a", "none"),
        ("a", "x-18446744073709551616"),
        ("b", "x-7"),
    ];
    assert_eq!(pods, order);
}
