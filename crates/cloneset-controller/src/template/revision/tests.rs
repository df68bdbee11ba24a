//! Revisions of a set with changing templates.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::template::test_pods::{any_json, set, shuffled};

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": image, "newField": 1}]},
    })
}

fn revision_of(template: &Value, number: i64) -> ControllerRevision {
    let new = NewRevision {
        set: &set(),
        annotations: &[("note".to_owned(), "x".to_owned()), (LAST_APPLIED.to_owned(), "{}".to_owned())]
            .into(),
        template,
        claim_templates: &[],
        collision_count: 0,
    };
    new_revision(&new, number).unwrap()
}

fn wanted<'a>(revisions: &'a [ControllerRevision], template: &Value) -> WantedRevision<'a> {
    let new = NewRevision {
        set: &set(),
        annotations: &BTreeMap::new(),
        template,
        claim_templates: &[],
        collision_count: 0,
    };
    wanted_revision(revisions, &new).unwrap()
}

#[test]
fn a_revision_contains_the_template() {
    let revision = revision_of(&template("app:1"), 7);
    let hash = template_hash(&template("app:1"), 0);
    assert_eq!((hash.len(), revision.revision), (HASH_LENGTH, 7));
    assert_eq!(revision.name_any(), format!("web-{hash}"));
    assert_eq!(
        revision.labels(),
        &[("app".to_owned(), "web".to_owned()), (HASH_LABEL.to_owned(), hash)].into()
    );
    assert_eq!(revision.annotations().keys().collect::<Vec<_>>(), ["note", CLAIMS_HASH]);
    assert_eq!(revision.owner_references(), [set().reference()]);
    let mut stored = template("app:1");
    stored["$patch"] = json!("replace");
    assert_eq!(revision.data.as_ref().unwrap().0, json!({"spec": {"template": stored}}));
    assert_eq!(template_of(&revision), Some(template("app:1")));
}

#[test]
fn the_name_depends_on_the_template_and_on_collisions() {
    let hash = template_hash(&template("app:1"), 0);
    assert_ne!(template_hash(&template("app:2"), 0), hash);
    assert_ne!(template_hash(&template("app:1"), 1), hash);
    assert_eq!(name("web", "5d4f"), "web-5d4f");
    let long = name(&format!("{}.{}", "w".repeat(247), "x".repeat(5)), "5d4f");
    assert_eq!((long.len(), long.ends_with("ww-5d4f")), (252, true), "{long}");
}

#[test]
fn a_template_that_was_used_before_keeps_its_revision() {
    assert!(matches!(wanted(&[], &template("app:1")), WantedRevision::Create(it) if it.revision == 1));
    let revisions = [revision_of(&template("app:2"), 2), revision_of(&template("app:1"), 1)];
    assert_eq!(wanted(&revisions, &template("app:2")), WantedRevision::Newest(&revisions[0]));
    assert_eq!(wanted(&revisions, &template("app:1")), WantedRevision::Raise(&revisions[1], 3));
    assert!(matches!(wanted(&revisions, &template("app:3")), WantedRevision::Create(it) if it.revision == 3));
    let last = [revision_of(&template("app:1"), i64::MAX)];
    assert_eq!(wanted(&last, &template("app:1")), WantedRevision::Newest(&last[0]));
    let patch = raise_patch(&revisions[1], 3, &[]);
    assert_eq!(
        (&patch["revision"], &patch["metadata"]["annotations"][CLAIMS_HASH]),
        (&json!(3), &json!(claims_hash(&[])))
    );
}

#[test]
fn a_revision_of_another_program_is_found() {
    let mut other = revision_of(&template("app:1"), 1);
    other.data = Some(RawExtension(json!({"spec": {"template": {
        "$patch": "replace", "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "app:1", "newField": 1, "resources": {}}], "volumes": []},
    }}})));
    let revisions = [other, ControllerRevision::default()];
    assert_eq!(find_equal(&revisions, &template("app:1")), Some(&revisions[0]));
}

#[test]
fn old_revisions_that_nobody_uses_are_deleted() {
    let revisions: Vec<_> = (1..=5).map(|it| revision_of(&template(&format!("app:{it}")), it)).collect();
    let names: Vec<String> = revisions.iter().map(|it| it.name_any()).collect();
    let numbers = |in_use: &[&str], limit| {
        let mut numbers: Vec<_> = to_delete(
            &revisions,
            in_use.iter().map(|it| -> &str { names.iter().find(|name| name.ends_with(it)).unwrap() }),
            limit,
        )
        .iter()
        .map(|it| it.revision)
        .collect();
        numbers.sort_unstable();
        numbers
    };
    let hash = |at: usize| short_hash(&names[at]);
    assert_eq!(numbers(&[], 5), Vec::<i64>::new());
    assert_eq!(numbers(&[], 2), [1, 2, 3]);
    assert_eq!(numbers(&[hash(0), names[4].as_str()], 1), [2, 3]);
    assert_eq!(numbers(&[hash(0)], 0), [2, 3, 4, 5]);
}

#[test]
fn claim_templates_are_compared() {
    let with = |claim_templates: &[Value]| {
        let annotations = BTreeMap::new();
        let template = template("app:1");
        let new = NewRevision {
            set: &set(),
            annotations: &annotations,
            template: &template,
            claim_templates,
            collision_count: 0,
        };
        new_revision(&new, 1).unwrap()
    };
    let claim = |name: &str, size: &str| json!({"metadata": {"name": name}, "spec": {"size": size}});
    let old = with(&[claim("a", "1Gi"), claim("b", "1Gi")]);
    assert!(!claims_changed(&old, &with(&[claim("b", "1Gi"), claim("a", "1Gi")])));
    assert!(claims_changed(&old, &with(&[claim("a", "1Gi"), claim("b", "2Gi")])));
    assert!(claims_changed(&old, &with(&[])));
    assert!(!claims_changed(&old, &ControllerRevision::default()));
}

proptest! {
    #[test]
    fn the_order_of_keys_does_not_matter(value in any_json()) {
        let template = json!({"spec": value});
        let again: Value = serde_json::from_str(&shuffled(&template)).unwrap();
        prop_assert_eq!(template_hash(&template, 0), template_hash(&again, 0));
        prop_assert_eq!(canonical_text(&template), canonical_text(&again));
    }

    #[test]
    fn no_template_panics(value in any_json()) {
        let revision = ControllerRevision { data: Some(RawExtension(value.clone())), ..ControllerRevision::default() };
        let _ = template_of(&revision);
        let _ = find_equal(&[revision], &value);
        let new = NewRevision {
            set: &set(), annotations: &BTreeMap::new(), template: &value, claim_templates: std::slice::from_ref(&value),
            collision_count: u32::MAX,
        };
        let _ = new_revision(&new, i64::MAX);
    }
}
