//! The mutating webhook, row by row, where operations end: steps 3 to 6 of the reference's, and what it spreads over
//! several writes.

use podward_core::hooks::{consumer_key_of, hook_finalizer};
use podward_core::keys::Stage;
use podward_core::{CheckResult, Checks, NoRules, Objection, Pod, on_update, plan_labels};
use serde_json::json;

use crate::tables::check;
use crate::words::{
    BEGUN, COMPLETING, EXPECTS_CONSUMER, Fixture, Hold, NOW, OPERATED, OPERATING, PREPARING, WAITING, off, on,
};

const BOTH: &str = "operating/x operation-type/x=T pre-checked/x operate/x permission/T \
                    operating/y operation-type/y=U pre-checked/y operate/y permission/U";

#[test]
fn steps_3_and_5_operations_that_overlap_end_together() {
    let waiting = "operation-type/x=T pre-checked/x operate/x permission/T \
                   operating/y operation-type/y=U pre-checked/y operate/y permission/U";
    let done =
        "operated/x done-operation-type/x=T post-check/x operated/y done-operation-type/y=U post-check/y";
    check(vec![
        ("3: the first finish only drops its operating", off(BOTH), "-operating/x", waiting),
        ("5, 6: the last finish ends all", off(waiting), "-operating/y", done),
        ("5: both at once", off(BOTH), "-operating/x -operating/y", done),
    ]);
}

/// Otherwise the pod would stay out of service for as long as the other one is not allowed to start.
#[test]
fn an_operation_that_is_only_announced_delays_no_end() {
    let with_y = |words: &str| format!("{words} operating/y operation-type/y=U pre-check/y");
    let (waiting, operating) = (off(&with_y(WAITING)), off(&with_y(OPERATING)));
    let (operated, completing) = (with_y(OPERATED), with_y(COMPLETING));
    let begun = with_y("SA");
    check(vec![
        ("finish", operating, "-operating/x", &operated),
        ("it waited for another one", waiting.clone(), "not-ready", &operated),
        ("completion", on(&completing).expecting(), "+held", &begun),
        (
            "begun again before its result is accepted: the pod stays out",
            off(&format!("{WAITING} operating/y operation-type/y=U pre-check/y preparing/y")),
            "not-ready",
            &format!("{WAITING} operating/y operation-type/y=U pre-check/y preparing/y"),
        ),
    ]);
    let hold = Hold { types: &["U"], results: &[] };
    waiting.expecting().reconciled(&hold).expect(&completing, "by the controller");
    on(&completing).expecting().held().reconciled(&hold).expect(&begun, "in service");
    on(&with_y("")).reconciled(&hold).expect(&begun, "a pod that was not in service before");
}

#[test]
fn step_5_the_type_is_kept_however_the_operator_finishes() {
    check(vec![
        ("the stock Finish", off(OPERATING), "-operating/x", OPERATED),
        ("operating and operation-type together", off(OPERATING), "-operating/x -operation-type/x", OPERATED),
        (
            "two ids of one type",
            off("operating/x operation-type/x=T pre-checked/x operate/x \
                 operation-type/y=T pre-checked/y operate/y permission/T"),
            "-operating/x -operation-type/x",
            "operated/x done-operation-type/x=T post-check/x operated/y done-operation-type/y=T post-check/y",
        ),
    ]);
    // Both labels removed while others are at work: by then the stored pod no longer says what the type was, the
    // permission does.
    let waiting = off(BOTH).written("-operating/x -operation-type/x");
    let done =
        "operated/x done-operation-type/x=T post-check/x operated/y done-operation-type/y=U post-check/y";
    waiting.written("-operating/y").expect(done, "the permission names the type");
    waiting.written("-operating/y -operation-type/y").expect(done, "and the write that of the other");
}

#[test]
fn step_4_completion() {
    let mixed = "operated/x done-operation-type/x=T post-checked/x completing/x operated/y done-operation-type/y=U post-check/y";
    let both = "operated/x done-operation-type/x=T post-checked/x completing/x \
                operated/y done-operation-type/y=U post-checked/y completing/y";
    check(vec![
        ("no ids at all", on("SA").expecting().held(), "not-ready", "SA"),
        ("not satisfied", on(COMPLETING).expecting(), "ready", COMPLETING),
        ("satisfied", on(COMPLETING).expecting(), "+held", "SA"),
        ("one of two", off(mixed).expecting().held(), "not-ready", mixed),
        ("both", off(mixed).expecting(), "+post-checked/y", both),
        ("both, satisfied", on(both).expecting(), "+held", "SA"),
    ]);
    // An annotation that can't be read fails the reference's request. Here the write goes through, and completion
    // waits.
    on(COMPLETING).annotated("no JSON").written("not-ready").expect(COMPLETING, "2.2 4, parse error");
    // What the reference leaves behind (operation-type, pre-check, pre-checked, preparing, permission) goes too.
    let leftovers =
        format!("{COMPLETING} operation-type/x=T pre-check/x pre-checked/x preparing/x permission/T");
    on(&leftovers).written("ready").expect("", "2.2 4, leftovers");
}

#[test]
fn the_last_consumer_makes_the_pod_available_within_its_own_write() {
    let hook = hook_finalizer("mesh");
    let with_hook = |mut fixture: Fixture| {
        fixture.finalizers.push(hook.clone());
        fixture
    };
    let expects_both = |fixture: Fixture| {
        fixture.annotated(
            &EXPECTS_CONSUMER
                .replace("{\"Service", &format!("{{\"{}\":\"{hook}\",\"Service", consumer_key_of("mesh"))),
        )
    };
    let asked = |fixture: Fixture| Fixture {
        hook_requests: Some(r#"{"mesh":{"phase":"COMPLETE","since":1}}"#.to_owned()),
        ..fixture
    };
    check(vec![
        ("a new pod", on("creating").expecting(), "+held", "SA"),
        ("gone and back", on("").expecting(), "+held", "SA"),
        ("not Ready yet", on(COMPLETING).expecting().ready(false), "+held", ""),
        ("Ready is that of before the operation", on("").expecting().ready_before_gate(), "+held", ""),
        (
            "it does not matter without a gate",
            on("").expecting().without_gate().ready_before_gate(),
            "+held",
            "SA",
        ),
        ("the gate is off", off("").expecting(), "+held", ""),
        ("another operation is only announced", on(BEGUN).expecting(), "+held", &format!("SA {BEGUN}")),
        ("another operation has started", on(PREPARING).expecting(), "+held", PREPARING),
        ("to stay offline", on("stay-offline").expecting(), "+held", "stay-offline"),
        ("a hook has added it before", with_hook(expects_both(on(""))), "+held", "SA"),
        ("a hook that is not expected has added it", with_hook(on("").expecting()), "+held", "SA"),
        ("a hook has not added it yet", expects_both(on("")), "+held", ""),
        ("a hook that was asked may not have added it", asked(with_hook(expects_both(on("")))), "+held", ""),
        ("no consumer is expected: the write may be that of a kubelet", on("").ready(false), "ready", ""),
        ("the consumer was there before", on("").expecting().held().ready(false), "ready", ""),
    ]);
}

/// A kubelet may not change labels, and a webhook that extends its write would make it fail.
#[test]
fn the_write_of_a_kubelet_does_not_end_the_operations_of_a_finished_pod() {
    let mut finished = on(COMPLETING).expecting().ready(false).json();
    finished["status"]["phase"] = json!("Running");
    let running: Pod = serde_json::from_value(finished.clone()).unwrap();
    finished["status"]["phase"] = json!("Succeeded");
    let finished: Pod = serde_json::from_value(finished).unwrap();
    for stored in [&running, &finished] {
        assert!(on_update(Some(stored), &finished, NOW).0.is_empty());
    }
    assert!(plan_labels(&running.view(), &NoRules, NOW).is_empty(), "it waits for its consumer");
    let changes = plan_labels(&finished.view(), &NoRules, NOW);
    assert!(changes.set.is_empty() && changes.remove.contains(&Stage::Completing.key("x")), "{changes:?}");
}

/// Webhooks of rules are not asked about a pod that has finished.
#[test]
fn the_result_of_an_operation_on_a_finished_pod_is_not_checked() {
    struct NoAnswer;
    impl Checks for NoAnswer {
        fn pre_check(&self, _: &str, _: &str) -> CheckResult {
            CheckResult::Pass
        }
        fn post_check(&self, _: &str, _: &str) -> CheckResult {
            CheckResult::Wait("its webhook has not answered yet".to_owned())
        }
        fn objections(&self, _: &str, _: &str) -> Vec<Objection> {
            Vec::new()
        }
    }
    let mut pod = off(OPERATED).expecting().ready(false).json();
    let mut ends = |phase: &str| {
        pod["status"]["phase"] = json!(phase);
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        plan_labels(&pod.view(), &NoAnswer, NOW).remove.contains(&Stage::Operated.key("x"))
    };
    assert!(!ends("Running") && ends("Failed"));
}

#[test]
fn step_6_post_check_is_given_to_each_id_that_has_neither() {
    check(vec![
        ("neither", off("operated/x done-operation-type/x=T"), "not-ready", OPERATED),
        ("post-check is there", off(OPERATED), "not-ready", OPERATED),
        ("post-checked is there", off(COMPLETING).expecting(), "not-ready", COMPLETING),
    ]);
}

#[test]
fn steps_that_the_reference_spreads_over_several_writes_are_taken_together() {
    check(vec![
        (
            "begin and permission in one write",
            off("SA"),
            "+operating/x +operation-type/x=T +permission/T +pre-checked/x",
            OPERATING,
        ),
        (
            "1b: preparing is never shown where operate follows",
            off(BEGUN),
            "+permission/T +pre-checked/x",
            OPERATING,
        ),
        ("1c, 4: nobody has to come back", off(OPERATED), "+post-checked/x", ""),
        ("1c, 4: everybody is back", off(OPERATED).expecting().held(), "+post-checked/x", ""),
        ("5, 6, 1c, 4: finished and judged in one write", off(OPERATING), "-operating/x +post-checked/x", ""),
    ]);
}

#[test]
fn an_operation_that_is_given_up_before_its_permission_leaves_nothing() {
    // The reference calls the pod finished and leaves pre-checked, preparing, permission and operation-type (d3, e7).
    check(vec![
        (
            "in pre-check, operating alone",
            on("SA").written("+operating/x +operation-type/x=T"),
            "-operating/x",
            "SA",
        ),
        (
            "announced while the webhook was away",
            on("SA operating/x operation-type/x=T"),
            "-operating/x",
            "SA",
        ),
        ("in pre-check, both", on(BEGUN), "-operating/x -operation-type/x", ""),
        ("in preparing, operating alone", on(PREPARING).held(), "-operating/x", ""),
        ("in preparing, both", on(PREPARING).held(), "-operating/x -operation-type/x", ""),
    ]);
}
