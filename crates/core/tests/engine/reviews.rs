//! What the webhooks say of a write: `review_raw` of the caller's own, `review` of what is about to be stored. The
//! rules of the protocol are in `rules`.

use podward_core::keys::{self, SERVICE_AVAILABLE, Stage, permission_key};
use podward_core::{
    Pod, Review, ReviewPolicy, Writer, on_create, on_update, review, review_raw, untrusted_permissions,
};

use crate::words::{BEGUN, COMPLETING, Fixture, NOW, OPERATED, OPERATING, PREPARING, off, on};

pub(crate) const OPERATOR: Writer<'_> =
    Writer { username: "system:serviceaccount:apps:operator", groups: &[] };
pub(crate) const PODWARD: Writer<'_> =
    Writer { username: "system:serviceaccount:podward:lifecycle-controller", groups: &[] };

pub(crate) fn policy(strict: bool) -> ReviewPolicy {
    ReviewPolicy { strict, trusted: vec![PODWARD.username.to_owned()] }
}

/// Both webhooks' words on one write: the mutating one sees the caller's, the validating one the result.
pub(crate) fn both(stored: &Fixture, write: &str, writer: &Writer<'_>, strict: bool) -> [Review; 2] {
    let old = stored.pod();
    let raw = review_raw(Some(&old), &stored.after(write).pod(), writer, &policy(strict));
    let result = review(Some(&old), &stored.written(write).pod(), writer, &policy(strict));
    [raw, result]
}

#[track_caller]
pub(crate) fn assert_silent(reviews: &[Review], why: &str) {
    for found in reviews {
        assert_eq!(found, &Review::default(), "{why}");
    }
}

/// One objection, which denies under `strict` and warns otherwise.
#[track_caller]
pub(crate) fn assert_objection(found: &Review, strict: bool, part: &str, why: &str) {
    let (texts, others) =
        if strict { (&found.denials, &found.warnings) } else { (&found.warnings, &found.denials) };
    assert!(
        texts.len() == 1 && texts[0].contains(part) && others.is_empty(),
        "{why}, strict {strict}: {found:?}"
    );
}

#[test]
fn half_announcements_are_objected_to() {
    let rows = [
        (
            "operating alone",
            on("SA"),
            "+operating/x",
            "operation-type.podopslifecycle.kusionstack.io/x is missing",
        ),
        (
            "an empty type",
            on("SA"),
            "+operating/x +operation-type/x=",
            "operation-type.podopslifecycle.kusionstack.io/x is missing",
        ),
        (
            "the type alone",
            on("SA"),
            "+operation-type/x=T",
            "operating.podopslifecycle.kusionstack.io/x is missing",
        ),
        (
            "the type is taken in pre-check",
            on(BEGUN),
            "-operation-type/x",
            "operation-type.podopslifecycle.kusionstack.io/x is missing",
        ),
        (
            "the type is taken with operate",
            off(OPERATING),
            "-operation-type/x",
            "operation-type.podopslifecycle.kusionstack.io/x is missing",
        ),
    ];
    for (name, stored, write, part) in rows {
        for strict in [false, true] {
            for found in both(&stored, write, &OPERATOR, strict) {
                assert_objection(&found, strict, part, name);
                let text = found.denials.iter().chain(&found.warnings).next().unwrap();
                assert!(
                    text.contains("operation x") && text.contains("set both in one write, or remove both"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn half_announcements_are_objected_to_once_and_not_where_there_is_none() {
    let rows = [
        ("both", on("SA"), "+operating/x +operation-type/x=T"),
        ("the stock Finish", off(OPERATING), "-operating/x"),
        ("Finish by removing both", off(OPERATING), "-operating/x -operation-type/x"),
        ("given up before permission", on(BEGUN), "-operating/x"),
        ("given up before permission, both", on(BEGUN), "-operating/x -operation-type/x"),
        ("given up in preparing", on(PREPARING).held(), "-operating/x"),
        ("a half that is there already", on("SA operating/x pre-check/x"), "not-ready"),
        ("a lone type that is there already", on("SA operation-type/x=T"), "not-ready"),
        ("the other half comes", on("SA operating/x pre-check/x"), "+operation-type/x=T"),
        ("the other half comes first", on("SA operation-type/x=T"), "+operating/x"),
        ("a half goes", on("SA operation-type/x=T"), "-operation-type/x"),
        ("a half is undone", on("SA operating/x pre-check/x"), "+undo-operation-type/x=T"),
    ];
    for (name, stored, write) in rows {
        assert_silent(&both(&stored, write, &OPERATOR, true), name);
    }
}

#[test]
fn a_half_announcement_on_create_is_objected_to() {
    let half = on("operating/x");
    for strict in [false, true] {
        assert_objection(
            &review_raw(None, &half.pod(), &OPERATOR, &policy(strict)),
            strict,
            "incomplete",
            "raw",
        );
        assert_objection(
            &review(None, &half.written("").pod(), &OPERATOR, &policy(strict)),
            strict,
            "incomplete",
            "result",
        );
    }
}

#[test]
fn allowed_writes_of_operators_are_never_refused() {
    let second = "operation-type/x=T pre-checked/x operate/x permission/T operating/y operation-type/y=U pre-checked/y operate/y permission/U";
    let rows = [
        ("begin", on("SA"), "+operating/x +operation-type/x=T"),
        ("begin while another is at work", off(OPERATING), "+operating/y +operation-type/y=U"),
        ("begin again in post-check", off(OPERATED), "+operating/x +operation-type/x=T"),
        ("begin again in completing", on(COMPLETING).expecting(), "+operating/x +operation-type/x=T"),
        ("begin again while waiting for others", off(second), "+operating/x"),
        ("go on with another type", off(OPERATING), "+operation-type/x=U"),
        ("finish", off(OPERATING), "-operating/x"),
        ("finish, both labels", off(OPERATING), "-operating/x -operation-type/x"),
        ("the first of two finishes", off(second).after("+operating/x"), "-operating/y"),
        ("the last of two finishes", off(second), "-operating/y"),
        ("undo in pre-check", on(BEGUN), "+undo-operation-type/x=T"),
        ("undo in preparing", on(PREPARING).held(), "+undo-operation-type/x=T"),
        ("undo with operate", off(OPERATING), "+undo-operation-type/x=T"),
        ("undo in post-check", off(OPERATED), "+undo-operation-type/x=T"),
        ("undo in completing", on(COMPLETING).expecting(), "+undo-operation-type/x=T"),
        ("a consumer lets go: operate comes", off(PREPARING).held(), "-held"),
        ("a consumer is back: all goes", on(COMPLETING).expecting(), "+held"),
        ("a workload's own labels", on("SA"), "+stay-offline"),
    ];
    for (name, stored, write) in rows {
        assert_silent(&both(&stored, write, &OPERATOR, true), name);
        // With the mutating webhook away the caller's own write is the result.
        let result = review(Some(&stored.pod()), &stored.after(write).pod(), &OPERATOR, &policy(true));
        assert_silent(&[result], &format!("{name}, no mutating webhook"));
    }
}

/// Every label that only Podward writes, of an operation `x` or of the pod.
fn protected() -> Vec<String> {
    let stages = Stage::OURS.iter().map(|stage| stage.key("x"));
    stages.chain([permission_key("T"), SERVICE_AVAILABLE.to_owned()]).collect()
}

#[test]
fn labels_that_only_podward_writes_are_protected() {
    assert_eq!(protected().len(), 12);
    for key in protected() {
        let without = on("");
        let with = without.clone().labelled(&key, "1");
        let other = without.clone().labelled(&key, "2");
        for (name, old, new) in
            [("set", &without, &with), ("taken", &with, &without), ("changed", &with, &other)]
        {
            for strict in [false, true] {
                let found = review_raw(Some(&old.pod()), &new.pod(), &OPERATOR, &policy(strict));
                assert_objection(&found, strict, &key, name);
                assert!(format!("{found:?}").contains(OPERATOR.username), "{found:?}");
            }
            assert_silent(&[review_raw(Some(&old.pod()), &new.pod(), &PODWARD, &policy(true))], name);
        }
    }
    for free in ["operating/x operation-type/x=T", "stay-offline", "creating", "completing"] {
        let found = review_raw(Some(&on("").pod()), &on(free).pod(), &OPERATOR, &policy(true));
        assert_silent(&[found], free);
    }
}

#[test]
fn a_foreign_write_within_an_engine_write_is_refused() {
    let rows = [
        ("grants itself the permission", on(BEGUN), "+permission/T +pre-checked/x", "pre-checked."),
        (
            "begins with the permission",
            on("SA"),
            "+operating/x +operation-type/x=T +permission/T +pre-checked/x",
            "pre-checked.",
        ),
        ("gives itself operate", on(BEGUN), "+operate/x", "operate."),
        ("judges its own result", off(OPERATED).expecting(), "+post-checked/x", "post-checked."),
        ("calls the pod available", on("").expecting(), "+SA", "service-available"),
        ("finishes and calls the pod available", off(OPERATING), "-operating/x +SA", "service-available"),
        (
            "undoes and calls the pod available",
            off(OPERATING),
            "+undo-operation-type/x=T +SA",
            "service-available",
        ),
        ("calls the pod not available", on("SA"), "-SA", "service-available"),
        (
            "takes away another's permission",
            off(&format!("{OPERATING} operating/y operation-type/y=U pre-check/y")),
            "-operate/x",
            "operate.",
        ),
    ];
    for (name, stored, write, part) in rows {
        for strict in [false, true] {
            for found in both(&stored, write, &OPERATOR, strict) {
                assert_objection(&found, strict, part, name);
            }
        }
        assert_silent(&[both(&stored, write, &PODWARD, true)[1].clone()], name);
    }
}

#[test]
fn protected_labels_on_create() {
    let copied = on("SA operated/x done-operation-type/x=T permission/T").pod();
    for strict in [false, true] {
        let found = review_raw(None, &copied, &OPERATOR, &policy(strict));
        assert_objection(&found, strict, "service-available", "copied from another pod's manifest");
    }
    let mut stored =
        on("SA operated/x done-operation-type/x=T permission/T operating/y operation-type/y=T").json();
    let patch = on_create(&serde_json::from_value(stored.clone()).unwrap(), false, &[], NOW);
    json_patch::patch(&mut stored, &patch).unwrap();
    let found = review(None, &serde_json::from_value(stored).unwrap(), &OPERATOR, &policy(true));
    assert_silent(
        &[found],
        "none of them is left by the mutating webhook, and what is begun is the operator's",
    );
}

#[test]
fn leaving_podwards_care_is_warned_of() {
    let stored = on("SA");
    let mut out = stored.clone();
    out.labels.remove(keys::CONTROL_LABEL);
    let found = review_raw(Some(&stored.pod()), &out.pod(), &OPERATOR, &policy(true));
    assert!(found.denials.is_empty() && found.warnings.len() == 1, "{found:?}");
    assert!(
        found.warnings[0].contains("no longer manages the pod")
            && found.warnings[0].contains(keys::CONTROL_LABEL)
    );
    assert_silent(&[review_raw(Some(&out.pod()), &stored.pod(), &OPERATOR, &policy(true))], "coming into it");
}

#[test]
fn pods_that_did_not_opt_in_are_not_judged() {
    let mut stranger =
        on("SA operated/x").labelled("operating.podopslifecycle.kusionstack.io", "1").annotated("no JSON");
    stranger.labels.remove(keys::CONTROL_LABEL);
    assert_silent(&[review_raw(None, &stranger.pod(), &OPERATOR, &policy(true))], "raw");
    assert_silent(&[review(None, &stranger.pod(), &OPERATOR, &policy(true))], "result");
}

#[test]
fn a_cancel_with_another_type_is_denied() {
    let rows = [
        ("in pre-check", on(BEGUN), "+undo-operation-type/x=wrong", true),
        ("with operate", off(OPERATING), "+undo-operation-type/x=wrong", true),
        ("empty", off(OPERATING), "+undo-operation-type/x=", true),
        ("after the result", off(OPERATED), "+undo-operation-type/x=wrong", true),
        (
            "the type changes too",
            off(OPERATING),
            "+undo-operation-type/x=wrong +operation-type/x=wrong",
            true,
        ),
        ("the right type", off(OPERATING), "+undo-operation-type/x=T", false),
        ("no operation", on("SA"), "+undo-operation-type/x=T", false),
        ("no type", on("SA operating/x"), "+undo-operation-type/x=T", false),
        (
            "its type is lost",
            off("operated/x done-operation-type/x=unknown post-check/x"),
            "+undo-operation-type/x=T",
            false,
        ),
        (
            "it was there before",
            off("operating/x operation-type/x=T undo-operation-type/x=wrong"),
            "+stay-offline",
            false,
        ),
    ];
    for (name, stored, write, is_denied) in rows {
        let (old, new) = (stored.pod(), stored.after(write).pod());
        // The mutating webhook removes the label, so the validating webhook only sees it if that one is down.
        let found = [
            review_raw(Some(&old), &new, &OPERATOR, &policy(false)),
            review(Some(&old), &new, &OPERATOR, &policy(false)),
        ];
        for review in found {
            let denials: Vec<_> = review.denials.iter().filter(|text| text.contains("to cancel")).collect();
            assert_eq!(!denials.is_empty(), is_denied, "{name}: {review:?}");
            assert!(denials.iter().all(|text| text.contains("set the label to T to cancel")), "{name}");
        }
    }
}

#[test]
fn a_pod_that_opts_in_is_reviewed_as_a_new_one() {
    let mut plain = on("").annotated("no JSON");
    plain.labels.remove(keys::CONTROL_LABEL);
    let opted_in = on("").annotated("no JSON");
    let found = review(Some(&plain.pod()), &opted_in.pod(), &OPERATOR, &policy(false));
    assert!(found.denials.len() == 1 && found.denials[0].contains(keys::AVAILABLE_CONDITIONS), "{found:?}");
}

/// Anybody who may update pods can remove the opt-in, write labels that no webhook sees, and restore it.
#[test]
fn a_pod_that_opts_in_has_no_labels_that_only_podward_writes() {
    let forged =
        "SA operating/x operation-type/x=T permission/T pre-checked/x operate/x operation-type/y=T operate/y";
    let new = on(forged);
    let mut old = new.clone();
    old.labels.remove(keys::CONTROL_LABEL);
    let (old, new) = (old.pod(), new.pod());
    for strict in [false, true] {
        let found = review(Some(&old), &new, &OPERATOR, &policy(strict));
        assert_objection(&found, strict, "operate.", "without the mutating webhook");
    }
    let permissions = untrusted_permissions(Some(&old), &new, &OPERATOR, &policy(false));
    assert_eq!(permissions, [Stage::Operate.key("x"), Stage::Operate.key("y")]);
    assert_eq!(untrusted_permissions(Some(&old), &new, &PODWARD, &policy(false)), [""; 0]);

    let mut stored = on(forged).json();
    json_patch::patch(&mut stored, &on_update(Some(&old), &new, NOW)).unwrap();
    let left: Pod = serde_json::from_value(stored).unwrap();
    let begun = off("operating/x operation-type/x=T pre-check/x preparing/x");
    assert!(
        left.view().labels.keys().eq(begun.labels.keys()),
        "out of service while it is checked: {:?}",
        left.view().labels
    );
    assert!(on_update(Some(&old), &left, NOW).0.is_empty(), "once is enough");
    assert_silent(&[review(Some(&old), &left, &OPERATOR, &policy(true))], "nothing is forged any more");
}
