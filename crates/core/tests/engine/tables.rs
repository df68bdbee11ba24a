//! The mutating webhook, row by row: what a write becomes within itself. Sources are sections and steps of the
//! reference's algorithm: `2.2 1b` is step 1b of its mutating webhook. Rows that end elsewhere on purpose are in tests
//! of their own, whose names or comments say why. How operations end is in `endings`.

use podward_core::keys::{self, Stage};
use podward_core::{ConditionStatus, Operations, ReviewPolicy, Writer, advance, may_operate, review};

use crate::words::{BEGUN, COMPLETING, Fixture, NOW, OPERATED, OPERATING, PREPARING, off, on};

/// Where it stands, what is stored, what is written, and the labels that come of it.
type Row<'a> = (&'static str, Fixture, &'static str, &'a str);

pub(crate) fn check(rows: Vec<Row<'_>>) {
    let policy = ReviewPolicy { strict: true, trusted: vec!["podward".to_owned()] };
    let writer = Writer { username: "podward", groups: &[] };
    for (source, stored, write, labels) in rows {
        let why = format!("{source}: {:?} after {write}", stored.words());
        let result = stored.written(write);
        result.expect(labels, &why);
        let found = review(Some(&stored.pod()), &result.pod(), &writer, &policy);
        assert_eq!(found.denials, Vec::<String>::new(), "{why}");
    }
}

#[test]
fn one_operation_from_end_to_end() {
    check(vec![
        (
            "begin",
            on("SA"),
            "+operating/x +operation-type/x=T",
            "SA operating/x operation-type/x=T pre-check/x",
        ),
        (
            "permission, in service",
            on(BEGUN).labelled(keys::SERVICE_AVAILABLE, "1"),
            "+permission/T +pre-checked/x",
            PREPARING,
        ),
        ("permission, already out of service", off(BEGUN), "+permission/T +pre-checked/x", OPERATING),
        ("the gate's own write gives operate", on(PREPARING), "gate=False", OPERATING),
        ("the gate's write while a consumer holds", on(PREPARING).held(), "gate=False", PREPARING),
        ("the last consumer lets go", off(PREPARING).held(), "-held", OPERATING),
        ("a consumer lets go before the gate is off", on(PREPARING).held(), "-held", PREPARING),
        ("finish", off(OPERATING), "-operating/x", OPERATED),
        ("post-checked", off(OPERATED).expecting(), "+post-checked/x", COMPLETING),
        ("the consumer is back", on(COMPLETING).expecting(), "+held", "SA"),
        ("any write once it is back", off(COMPLETING).expecting().held(), "ready", ""),
        ("a status write before it is back", on(COMPLETING).expecting().ready(false), "ready", COMPLETING),
    ]);
}

#[test]
fn readiness_to_operate() {
    use ConditionStatus::{False, True, Unknown};
    // (the condition, whether the pod has the gate, whether a consumer holds it, whether it may be operated on)
    let rows = [
        (Some(False), true, false, true),
        (Some(False), false, false, true),
        (Some(False), true, true, false),
        (Some(True), true, false, false),
        (Some(True), true, true, false),
        (Some(Unknown), true, false, false),
        (Some(Unknown), true, true, false),
        (None, false, false, true),
        // The reference doesn't look at finalizers where the condition is absent. They are honoured here.
        (None, false, true, false),
        // The reference takes an absent condition for off, also where the pod has the gate and nobody has written it
        // yet.
        (None, true, false, false),
        (None, true, true, false),
    ];
    for (gate, has_gate, held, expected) in rows {
        let mut fixture = off(PREPARING).gate(gate);
        fixture.has_gate = has_gate;
        let fixture = if held { fixture.held() } else { fixture };
        let why = format!("gate {gate:?} (in the spec: {has_gate}), held: {held}");
        assert_eq!(may_operate(&fixture.view()), expected, "{why}");
        fixture.written("").expect(if expected { OPERATING } else { PREPARING }, &why);
    }
}

#[test]
fn step_0_pods_that_did_not_opt_in_are_left_alone() {
    for value in [None, Some("false"), Some("True"), Some("")] {
        let mut fixture = on(BEGUN);
        fixture.labels.remove(keys::CONTROL_LABEL);
        fixture.labels.extend(value.map(|value| (keys::CONTROL_LABEL.to_owned(), value.to_owned())));
        let changes = advance(None, &fixture.after("+permission/T +pre-checked/x").view(), NOW);
        assert!(changes.is_empty(), "{value:?}: {changes:?}");
    }
}

#[test]
fn step_1a_undo_takes_every_label_of_the_id() {
    let undo = "+undo-operation-type/x=T";
    check(vec![
        ("undo before permission", on(BEGUN), undo, ""),
        (
            "undo before permission leaves the pod available",
            on("SA").written("+operating/x +operation-type/x=T"),
            undo,
            "SA",
        ),
        ("undo in preparing", on(PREPARING).held(), undo, ""),
        ("undo with operate", off(OPERATING), undo, ""),
        ("undo after operated", off(OPERATED), undo, ""),
        ("undo in completing", on(COMPLETING).expecting(), undo, ""),
        (
            "undo in the write that begins",
            on("SA"),
            "+operating/x +operation-type/x=T +undo-operation-type/x=T",
            "SA",
        ),
        (
            "undo leaves other ids",
            off("operating/y operation-type/y=U pre-check/y"),
            undo,
            "operating/y operation-type/y=U pre-check/y",
        ),
    ]);
    let all: String = Stage::ALL.iter().map(|stage| format!("{stage}/x ")).collect();
    off(&all).written("").expect("", "2.2 1a: all of them");
}

#[test]
fn step_1a_undo_ignores_its_value_and_unknown_ids() {
    // The reference compares the undo label's value with the type, and never finds an id that has none of operating,
    // operate and operated. Here the id is enough.
    check(vec![
        ("the value is another type", off(OPERATING), "+undo-operation-type/x=other", ""),
        ("the value is empty", on(PREPARING), "+undo-operation-type/x=", ""),
        ("an id that was never begun", on("SA"), "+undo-operation-type/x=T", "SA"),
        (
            "an announcement that has only its type",
            on("SA operation-type/x=T"),
            "+undo-operation-type/x=T",
            "SA",
        ),
    ]);
}

#[test]
fn step_1b_an_operation_that_was_begun() {
    check(vec![
        (
            "not checked: pre-check",
            on("SA"),
            "+operating/x +operation-type/x=T",
            "SA operating/x operation-type/x=T pre-check/x",
        ),
        ("not checked: pre-check is there", on(BEGUN), "not-ready", BEGUN),
        ("checked, in service", on(BEGUN), "+permission/T +pre-checked/x", PREPARING),
        ("checked, preparing is there", on(PREPARING), "not-ready", PREPARING),
        ("checked, operate is there", off(OPERATING), "ready", OPERATING),
        (
            "each id for itself",
            on("SA operating/x operation-type/x=T pre-check/x operating/y operation-type/y=T pre-check/y"),
            "+permission/T +pre-checked/y",
            "operating/x operation-type/x=T pre-check/x \
             operating/y operation-type/y=T permission/T pre-checked/y preparing/y",
        ),
    ]);
}

#[test]
fn step_1c_post_checked_counts_only_for_an_operation_that_is_done() {
    // The reference gives `completing` also to an id that is operating: its pod then goes into service in
    // mid-operation.
    off(OPERATING)
        .written("+post-checked/x")
        .expect("operating/x operation-type/x=T pre-check/x preparing/x", "2.2 1c");
}

#[test]
fn step_2_a_permission_goes_with_the_last_operation_of_its_type() {
    let two = "operating/x operation-type/x=T pre-checked/x operate/x operating/y operation-type/y=T pre-checked/y operate/y permission/T";
    let one = "operating/y operation-type/y=T pre-checked/y operate/y permission/T";
    let types = "operating/x operation-type/x=T pre-checked/x operate/x permission/T \
                 operating/y operation-type/y=U pre-checked/y operate/y permission/U";
    check(vec![
        ("one of two of a type", off(two), "+undo-operation-type/x=T", one),
        ("both of a type", off(two), "+undo-operation-type/x=T +undo-operation-type/y=T", ""),
        (
            "one of two types",
            off(types),
            "+undo-operation-type/x=T",
            "operating/y operation-type/y=U pre-checked/y operate/y permission/U",
        ),
    ]);
}

#[test]
fn ids_that_the_reference_does_not_see() {
    // 2.1: there an id exists only through operating, operate or operated; other labels of it stay for ever.
    for orphan in
        ["pre-check/x", "preparing/x", "completing/x", "pre-checked/x", "post-check/x", "post-checked/x"]
    {
        on("SA").after(&format!("+{orphan}")).written("").expect("SA", orphan);
    }
    on(&format!("SA {}", "operation-type/x=T"))
        .written("")
        .expect("SA operation-type/x=T", "a lone type is the operator's");
    let mut malformed = on("SA");
    malformed.labels.insert("operating.podopslifecycle.kusionstack.io".to_owned(), "1".to_owned());
    assert!(advance(None, &malformed.view(), NOW).is_empty(), "a label without an id fails no request");
}

#[test]
fn new_labels_carry_nanoseconds_and_types_and_old_ones_are_not_written_again() {
    let begun = on("SA").after("+operating/x +operation-type/x=T");
    let changes = advance(Some(&on("SA").view()), &begun.view(), NOW);
    assert_eq!(
        changes.set.into_iter().collect::<Vec<_>>(),
        [(Stage::PreCheck.key("x"), "1700000000000000000".to_owned())]
    );
    let stored = off(OPERATING);
    let done = advance(Some(&stored.view()), &stored.after("-operating/x").view(), NOW);
    assert_eq!(done.set[&Stage::DoneOperationType.key("x")], "T");
    assert_eq!(done.set[&Stage::Operated.key("x")], "1700000000000000000");
    let permitted = on(BEGUN).written("+permission/T +pre-checked/x");
    assert_eq!(
        permitted.labels[&Stage::Operating.key("x")],
        "1600000000000000000",
        "the operator's own value stays"
    );
}

#[test]
fn an_operation_id_may_have_any_valid_form() {
    for id in ["collaset", "pod-delete", "0xd96f0f85", "My.job_1"] {
        let begun = on("SA").written(&format!("+operating/{id} +operation-type/{id}=T"));
        assert!(Operations::parse(&begun.labels).get(id).unwrap().has(Stage::PreCheck), "{id}");
    }
}
