//! The controller, step by step (2.4 of the reference's algorithms), with no webhook to help: what it writes to labels
//! and gate.

use podward_core::{ConditionStatus, NoRules, plan_labels, without_consumers};

use crate::words::{COMPLETING, Fixture, Hold, NOW, OPERATED, OPERATING, PREPARING, off, on};

/// Where it stands, what is stored, and what the controller makes of the labels and of the gate as it is after that.
type Row = (&'static str, Fixture, &'static str, Option<ConditionStatus>);

const GATE_ON: Option<ConditionStatus> = Some(ConditionStatus::True);
const GATE_OFF: Option<ConditionStatus> = Some(ConditionStatus::False);

fn check(rows: Vec<Row>) {
    for (source, stored, labels, gate) in rows {
        let result = stored.reconciled(&NoRules);
        result.expect(labels, source);
        assert_eq!(result.gate_write(), gate, "{source}: the gate");
        let again = plan_labels(&result.view(), &NoRules, NOW);
        assert!(again.is_empty(), "{source}: writes again: {again:?}");
    }
}

#[test]
fn step_1_pods_that_are_being_deleted_are_left_alone() {
    check(vec![
        (
            "begun",
            on("SA operating/x operation-type/x=T").terminating(),
            "SA operating/x operation-type/x=T",
            None,
        ),
        ("preparing", on(PREPARING).terminating(), PREPARING, None),
        ("not Ready", off("SA").terminating(), "SA", None),
        ("undone", off("").terminating(), "", None),
    ]);
    let mut left_out = on("operating/x operation-type/x=T").gate(GATE_OFF);
    left_out.labels.remove("kusionstack.io/control");
    check(vec![("not opted in", left_out, "operating/x operation-type/x=T", None)]);
}

#[test]
fn step_2_into_service() {
    check(vec![
        ("all is there", on(""), "SA", None),
        ("the consumer is there", on("").expecting().held(), "SA", None),
        ("the consumer is not", on("").expecting(), "", None),
        ("not Ready", on("").ready(false), "", None),
        ("creating and completing end with it", on("creating completing"), "SA", None),
        ("creating stays until then", on("creating").expecting(), "creating", None),
        ("a creating pod that is not Ready", on("creating").ready(false), "creating", None),
        ("available already: creating is the workload's", on("SA creating"), "SA creating", None),
        ("the gate is off", off(""), "", GATE_ON),
        ("the gate was never written", off("").gate(None), "", GATE_ON),
        ("the gate is unknown", off("").gate(Some(ConditionStatus::Unknown)), "", GATE_ON),
        ("a pod without the gate gets no condition", off("").without_gate(), "", None),
        ("a pod without the gate is available by the rest", on("").without_gate(), "SA", None),
        ("a lone type is no operation", on("operation-type/x=T"), "SA operation-type/x=T", None),
        ("an annotation that nobody can read", on("").annotated("{"), "", None),
    ]);
}

#[test]
fn step_2_stay_offline() {
    check(vec![
        ("not put into service", off("stay-offline"), "stay-offline", None),
        ("not called available", on("stay-offline"), "stay-offline", None),
        ("not taken out either", on("SA stay-offline"), "SA stay-offline", None),
        (
            "an announcement does not put it into service",
            off("stay-offline operating/x pre-check/x"),
            "stay-offline operating/x pre-check/x",
            None,
        ),
        (
            "the gate of an operation",
            on(&format!("stay-offline {PREPARING}")),
            join("stay-offline", PREPARING),
            GATE_OFF,
        ),
        (
            "an operation ends without its consumers",
            off(&format!("stay-offline {COMPLETING}")).expecting(),
            "stay-offline",
            None,
        ),
        (
            "an operation ends with its consumers",
            off(&format!("stay-offline {COMPLETING}")).expecting().held(),
            "stay-offline",
            None,
        ),
    ]);
}

/// Words of a row are `'static` in the tables; the few that are put together live as long as the tests.
fn join(first: &str, second: &str) -> &'static str {
    Box::leak(format!("{first} {second}").into_boxed_str())
}

#[test]
fn step_2_expectations_that_no_consumer_will_meet() {
    let text = r#"{"expectedFinalizers":{"Service/d/gone":"prot.podopslifecycle.kusionstack.io/1"}}"#;
    let waiting = on("").annotated(text);
    waiting.reconciled(&NoRules).expect("", "waits for a Service that is gone");
    let mended = without_consumers(text, &["Service/d/gone"]).unwrap().unwrap();
    waiting
        .annotated(&mended)
        .reconciled(&NoRules)
        .expect("SA", "available at once, not at a later reconcile");
    // The reference stops at the first key that is in order; here every one that is named goes.
    let text = r#"{"expectedFinalizers":{"Service/d/a":"1","Service/d/b":"2","Service/d/c":"3"}}"#;
    assert_eq!(
        without_consumers(text, &["Service/d/a", "Service/d/c"]).unwrap().as_deref(),
        Some(r#"{"expectedFinalizers":{"Service/d/b":"2"}}"#)
    );
}

#[test]
fn step_3_checks() {
    check(vec![
        (
            "PreCheck: permission and pre-checked, out it goes",
            on("SA operating/x operation-type/x=T pre-check/x"),
            PREPARING,
            GATE_OFF,
        ),
        (
            "PreCheck of a pod that is out already",
            off("operating/x operation-type/x=T pre-check/x"),
            OPERATING,
            None,
        ),
        (
            "PreCheck of a pod that a consumer holds",
            off("operating/x operation-type/x=T pre-check/x").held(),
            PREPARING,
            None,
        ),
        (
            "PreCheck without the webhook's pre-check",
            on("SA operating/x operation-type/x=T"),
            PREPARING,
            GATE_OFF,
        ),
        ("no type, no permission", on("SA operating/x pre-check/x"), "SA operating/x pre-check/x", None),
        (
            "an empty type is none",
            on("SA operating/x operation-type/x= pre-check/x"),
            "SA operating/x operation-type/x= pre-check/x",
            None,
        ),
        ("PostCheck", off(OPERATED).expecting(), COMPLETING, GATE_ON),
        ("PostCheck where nobody has to come back", off(OPERATED), "", GATE_ON),
    ]);
    // The reference marks every id of the pod; here only those that wait for it.
    off(&format!("{OPERATED} operating/y operation-type/y=U permission/U pre-checked/y operate/y"))
        .reconciled(&NoRules)
        .expect(
            join(COMPLETING, "operating/y operation-type/y=U permission/U pre-checked/y operate/y"),
            "step 3, PostCheck of one of two",
        );
}

#[test]
fn step_3_checks_that_do_not_pass() {
    let hold = Hold { types: &["T"], results: &["x"] };
    let begun = "SA operating/x operation-type/x=T pre-check/x";
    on(begun).reconciled(&hold).expect(begun, "PreCheck");
    assert_eq!(on(begun).reconciled(&hold).gate_write(), None, "in service while it waits");
    let offline = off("stay-offline operating/x operation-type/x=T pre-check/x").reconciled(&hold);
    assert_eq!(offline.gate_write(), None, "a pod that stays offline is not put into service while it waits");
    off(OPERATED).reconciled(&hold).expect(OPERATED, "PostCheck");
    assert_eq!(off(OPERATED).reconciled(&hold).gate_write(), None, "out of service while it waits");
    let both = "SA operating/x operation-type/x=T pre-check/x operating/y operation-type/y=U pre-check/y";
    on(both).reconciled(&hold).expect(
        "operating/x operation-type/x=T pre-check/x operating/y operation-type/y=U permission/U pre-checked/y preparing/y",
        "one of two",
    );
}

#[test]
fn step_4_the_gate() {
    check(vec![
        ("preparing", on(PREPARING), PREPARING, GATE_OFF),
        ("preparing, off already", off(PREPARING).held(), PREPARING, None),
        ("preparing without the gate", on(PREPARING).without_gate().held(), PREPARING, None),
        ("completing", off(COMPLETING).expecting(), COMPLETING, GATE_ON),
        ("completing, on already", on(COMPLETING).expecting(), COMPLETING, None),
        (
            "preparing wins over completing",
            on(&format!(
                "{COMPLETING} operating/y operation-type/y=U permission/U pre-checked/y preparing/y"
            ))
            .expecting(),
            join(COMPLETING, "operating/y operation-type/y=U permission/U pre-checked/y preparing/y"),
            GATE_OFF,
        ),
        (
            "so does operate, which the reference forgets",
            off(&format!("{COMPLETING} operating/y operation-type/y=U permission/U pre-checked/y operate/y"))
                .expecting(),
            join(COMPLETING, "operating/y operation-type/y=U permission/U pre-checked/y operate/y"),
            None,
        ),
        (
            "a gate that somebody turned on under an operator is turned off",
            on(OPERATING),
            OPERATING,
            GATE_OFF,
        ),
    ]);
}

#[test]
fn step_5_not_ready() {
    check(vec![
        ("available no more", on("SA").ready(false), "", None),
        ("nothing to take away, nothing written", on("").ready(false), "", None),
        ("nor in an operation", off(OPERATING), OPERATING, None),
    ]);
}

#[test]
fn the_webhooks_steps_are_taken_without_it() {
    check(vec![
        ("undo", off(&format!("{OPERATING} undo-operation-type/x=T")), "", GATE_ON),
        (
            "finish, with nobody to wait for",
            off("operation-type/x=T permission/T pre-checked/x operate/x"),
            "",
            GATE_ON,
        ),
        (
            "finish by removing both",
            off("permission/T pre-checked/x operate/x").expecting(),
            COMPLETING,
            GATE_ON,
        ),
        ("the consumer is back", on(COMPLETING).expecting().held(), "SA", None),
        ("given up", off("operation-type/x=T permission/T pre-checked/x preparing/x"), "", GATE_ON),
        ("consumers have let go", off(PREPARING), OPERATING, None),
    ]);
}

#[test]
fn pods_at_rest_cost_no_write() {
    let rest = [
        on("SA"),
        on("SA").expecting().held(),
        on("SA creating"),
        on("SA stay-offline"),
        off("stay-offline"),
        on("").ready(false),
        off("").ready(false).without_gate(),
        off(PREPARING).held(),
        off(OPERATING),
        on(COMPLETING).expecting(),
        on("").expecting(),
        on("SA operating/x pre-check/x"),
        on("SA operation-type/x=T"),
    ];
    for fixture in rest {
        let changes = plan_labels(&fixture.view(), &NoRules, NOW);
        assert!(changes.is_empty(), "{fixture:?}: {changes:?}");
        assert_eq!(fixture.gate_write(), None, "{fixture:?}");
    }
}
