//! The rules of the reference's validating webhook (2.3), 1 to 4. They are always denials, and only of what this write
//! brings.

use podward_core::keys::{self, Stage, permission_key};
use podward_core::review;

use crate::reviews::{OPERATOR, PODWARD, assert_silent, both, policy};
use crate::words::{OPERATED, OPERATING, off, on};

#[test]
fn rule_1_an_annotation_that_nobody_can_meet() {
    let of_no_service =
        r#"{"expectedFinalizers":{"Service/shop/my web":"prot.podopslifecycle.kusionstack.io/x"}}"#;
    for text in ["no JSON", "", "[]", r#"{"expectedFinalizers":{"a":1}}"#, of_no_service] {
        let (good, bad) = (on("SA").expecting().held(), on("SA").held().annotated(text));
        let found = review(Some(&good.pod()), &bad.pod(), &OPERATOR, &policy(false));
        assert_eq!(found.denials.len(), 1, "{text}");
        assert!(found.denials[0].starts_with("failed to validate PodOpsLifecycleWebhook, "), "{found:?}");
        assert!(found.denials[0].contains(keys::AVAILABLE_CONDITIONS), "{found:?}");
        assert_eq!(review(None, &bad.pod(), &OPERATOR, &policy(false)).denials.len(), 1, "also on CREATE");
        assert_silent(
            &[review(Some(&bad.pod()), &bad.after("not-ready").pod(), &OPERATOR, &policy(true))],
            "it was there before",
        );
        assert_silent(&[review(Some(&bad.pod()), &good.pod(), &OPERATOR, &policy(true))], "it is corrected");
    }
    let of_another_kind = r#"{"expectedFinalizers":{"Slb/shop/my lb":"example.com/x"}}"#;
    for text in [
        "{}",
        "null",
        r#"{"expectedFinalizers":null}"#,
        r#"{"expectedFinalizers":{},"other":1}"#,
        of_another_kind,
    ] {
        assert_silent(&[review(None, &on("").annotated(text).pod(), &OPERATOR, &policy(true))], text);
    }
}

#[test]
fn rule_2_labels_without_an_id() {
    // The reference looks at its twelve prefixes; the permission, whose suffix is a type, is held to the same here.
    let mut keys: Vec<String> = Stage::ALL.iter().map(|stage| stage.key("")).collect();
    keys.push(permission_key(""));
    for key in keys {
        let key = key.trim_end_matches('/');
        let bad = on("SA").labelled(key, "1");
        for writer in [OPERATOR, PODWARD] {
            let found = review(Some(&on("SA").pod()), &bad.pod(), &writer, &policy(false));
            let text = format!("failed to validate PodOpsLifecycleWebhook, invalid label {key}");
            assert!(found.denials.len() == 1 && found.denials[0].starts_with(&text), "{found:?}");
        }
        assert_silent(
            &[review(Some(&bad.pod()), &bad.after("not-ready").pod(), &OPERATOR, &policy(true))],
            "it was there before",
        );
    }
}

#[test]
fn rule_3_operated_and_its_type_come_together() {
    for (alone, missing) in
        [("operated/x", Stage::DoneOperationType), ("done-operation-type/x=T", Stage::Operated)]
    {
        let found = review(Some(&off("").pod()), &off(alone).pod(), &PODWARD, &policy(false));
        let text = format!("not found label {}", missing.key("x"));
        assert!(found.denials.len() == 1 && found.denials[0].contains(&text), "{found:?}");
        assert_silent(
            &[review(Some(&off(alone).pod()), &off(alone).pod(), &PODWARD, &policy(true))],
            "it was there before",
        );
    }
    assert_silent(
        &[review(Some(&off(OPERATING).pod()), &off(OPERATED).pod(), &PODWARD, &policy(true))],
        "both",
    );
}

#[test]
fn rule_4_pre_checked_and_permission_come_together() {
    let begun = "operating/x operation-type/x=T";
    for (alone, missing) in [("pre-checked/x", "operation-permission"), ("permission/T", "pre-checked")] {
        let new = on(&format!("{begun} {alone}"));
        let found = review(Some(&on(begun).pod()), &new.pod(), &PODWARD, &policy(false));
        let text = format!("not found the expected label prefixes: map[{missing}:");
        assert!(found.denials.len() == 1 && found.denials[0].contains(&text), "{found:?}");
    }
    // Only that both kinds are there, not that they fit each other.
    let mixed = on(&format!("{begun} pre-checked/x permission/U"));
    assert_silent(
        &[review(Some(&on(begun).pod()), &mixed.pod(), &PODWARD, &policy(true))],
        "another type's permission",
    );
}

#[test]
fn rules_3_and_4_cannot_be_broken_by_a_client_while_the_engine_is_there() {
    // e2 of the reference: a finish after the type was taken. It is denied there.
    let cases = [
        (off("operating/x permission/T pre-checked/x operate/x"), "-operating/x"),
        (off("operating/x pre-checked/x operate/x permission/T permission/U"), "-operating/x"),
    ];
    for (stored, write) in cases {
        assert_silent(&both(&stored, write, &OPERATOR, true), write);
    }
}
