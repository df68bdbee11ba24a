//! What people are told: in every phase who waits for whom, and what comes next.

use podward_core::keys::{self, SERVICE_READY_GATE, STAY_OFFLINE};
use podward_core::{ConditionStatus, NoRules, explain};

use crate::words::{
    BEGUN, COMPLETING, CONSUMER, Fixture, Hold, OPERATED, OPERATING, PREPARING, WAITING, off, on,
};

/// Where it stands, the pod, the reason, and what the message says and doesn't say (`!`).
type Row = (&'static str, Fixture, &'static str, &'static [&'static str]);

fn check(status: ConditionStatus, rows: Vec<Row>) {
    for (name, fixture, reason, parts) in rows {
        let found = explain(&fixture.view(), &NoRules, &[]);
        assert_eq!((found.status, found.reason), (status, reason), "{name}: {}", found.message);
        assert_parts(name, &found.message, parts);
        assert_eq!(found, explain(&fixture.view(), &NoRules, &[]), "{name}: the same each time");
    }
}

#[track_caller]
fn assert_parts(name: &str, message: &str, parts: &[&str]) {
    for part in parts {
        match part.strip_prefix('!') {
            Some(absent) => assert!(!message.contains(absent), "{name} must not say {absent:?}: {message}"),
            None => assert!(message.contains(part), "{name} must say {part:?}: {message}"),
        }
    }
}

fn with_y(words: &str, y: &str) -> String {
    format!("{words} {y}")
}

const Y_OPERATING: &str = "operating/y operation-type/y=U permission/U pre-checked/y operate/y";
const Y_PREPARING: &str = "operating/y operation-type/y=U permission/U pre-checked/y preparing/y";
const Y_BEGUN: &str = "operating/y operation-type/y=U pre-check/y";

#[test]
fn one_operation_in_each_phase() {
    check(
        ConditionStatus::False,
        vec![
            (
                "announced",
                on(BEGUN),
                "PreChecking",
                &["operation x (T) is announced", "takes the pod out of service for it next"],
            ),
            (
                "preparing, gate on",
                on(PREPARING),
                "Preparing",
                &[
                    "operation x (T) waits for pod.kusionstack.io/service-ready to turn False",
                    "Podward writes next",
                    "!owners",
                ],
            ),
            (
                "preparing, gate on, held",
                on(PREPARING).held(),
                "Preparing",
                &[
                    "to turn False",
                    "and then for the owners of prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb to release the pod",
                ],
            ),
            (
                "preparing, gate never written",
                off(PREPARING).gate(None),
                "Preparing",
                &["waits for pod.kusionstack.io/service-ready to turn False"],
            ),
            (
                "preparing, held",
                off(PREPARING).held(),
                "Preparing",
                &[
                    "waits for the owners of prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb to release the pod",
                    "!turn False",
                ],
            ),
            (
                "preparing, held, no gate",
                off(PREPARING).without_gate().held(),
                "Preparing",
                &["waits for the owners of", "!turn False"],
            ),
            (
                "preparing, nothing left to wait for",
                off(PREPARING),
                "Preparing",
                &["operation x (T) gets its permission next"],
            ),
            (
                "operating",
                off(OPERATING),
                "Operating",
                &[
                    "has its permission",
                    "waits until the operator has finished and removes operating.podopslifecycle.kusionstack.io/x",
                    "!but",
                ],
            ),
            (
                "operating, a consumer came back",
                off(OPERATING).held(),
                "Operating",
                &["has its permission", "; but the owners of", "hold the pod"],
            ),
            (
                "operating, somebody turned the gate on",
                on(OPERATING),
                "Operating",
                &["; but pod.kusionstack.io/service-ready is not False"],
            ),
            (
                "operating, its type is gone",
                off("operating/x pre-checked/x operate/x permission/T"),
                "Operating",
                &["operation x (T) has"],
            ),
            ("judged", off(OPERATED), "PostChecking", &["operation x (T) is done", "accepts its result"]),
            (
                "completing, gate still off",
                off(COMPLETING).expecting(),
                "Completing",
                &[
                    "is done and waits for pod.kusionstack.io/service-ready to turn True",
                    "then for Service/default/server",
                ],
            ),
            (
                "completing, not Ready yet",
                on(COMPLETING).expecting().ready(false),
                "Completing",
                &["waits for the pod to be Ready, and then for Service/default/server"],
            ),
            (
                "completing, the consumer is missing",
                on(COMPLETING).expecting(),
                "Completing",
                &[
                    "waits for Service/default/server (finalizer prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb) to add the pod to traffic",
                ],
            ),
            (
                "completing, everybody is back",
                on(COMPLETING).expecting().held(),
                "Completing",
                &["its labels go next", "!other", "!waits"],
            ),
            (
                "completing, nobody can tell who is missing",
                on(COMPLETING).annotated("no JSON"),
                "Completing",
                &[
                    "cannot end because the expected consumers cannot be read",
                    "pod.kusionstack.io/available-conditions must be JSON",
                    "until it is corrected",
                    "!labels go next",
                ],
            ),
        ],
    );
}

#[test]
fn reasons_of_checks_are_reported() {
    let hold = Hold { types: &["T"], results: &["x"] };
    let found = explain(&on(BEGUN).view(), &hold, &[]);
    assert_eq!(found.reason, "PreChecking");
    assert_eq!(found.message, "operation x (T) waits for its pre-checks: the budget is used up");
    let found = explain(&off(OPERATED).view(), &hold, &[]);
    assert_eq!(found.reason, "PostChecking");
    assert_eq!(
        found.message,
        "operation x (T) is done and waits for its post-checks: the new version fails its probe"
    );
}

#[test]
fn a_repeated_check_does_not_announce_the_permission() {
    let again = off(OPERATED).written("+operating/x +operation-type/x=T");
    check(
        ConditionStatus::False,
        vec![(
            "begun again",
            again.clone(),
            "PreChecking",
            &["announced again", "keeps the pod out of service", "!permission"],
        )],
    );
    let held = explain(&again.view(), &Hold { types: &["T"], results: &[] }, &[]);
    assert_eq!(held.message, "operation x (T) waits for its pre-checks: the budget is used up");
    let lost = again.written("-operation-type/x");
    check(
        ConditionStatus::False,
        vec![(
            "and its type is gone",
            lost,
            "PreChecking",
            &["operation-type.podopslifecycle.kusionstack.io/x is missing"],
        )],
    );
}

#[test]
fn several_operations_are_listed_under_the_deciding_reason() {
    check(
        ConditionStatus::False,
        vec![
            (
                "one is done, the other works",
                off(&with_y(WAITING, Y_OPERATING)),
                "Operating",
                &[
                    "operation x (T) is done and waits for operation y to be done. operation y (U) has its permission",
                ],
            ),
            (
                "one completes, the other works",
                off(&with_y(COMPLETING, Y_OPERATING)).expecting(),
                "Operating",
                &["operation x (T) is done and waits for operation y to be done", "!turn True"],
            ),
            (
                "one completes, the other prepares",
                on(&with_y(COMPLETING, Y_PREPARING)),
                "Preparing",
                &["waits for operation y to be done"],
            ),
            (
                "one is judged, the other is announced",
                off(&with_y(OPERATED, Y_BEGUN)),
                "PreChecking",
                &["operation y (U) is announced"],
            ),
            (
                "one works, the other is announced",
                off(&with_y(OPERATING, Y_BEGUN)),
                "Operating",
                &["operation y (U) is announced"],
            ),
            (
                "one completes, the other is announced",
                off(&with_y(COMPLETING, Y_BEGUN)).expecting(),
                "PreChecking",
                &[
                    "operation x (T) is done and waits for pod.kusionstack.io/service-ready to turn True",
                    "!y to be done",
                ],
            ),
            (
                "one works, the other is announced: the first waits for the one that works",
                off(&format!("{WAITING} {Y_OPERATING} operating/z operation-type/z=V pre-check/z")),
                "Operating",
                &["operation x (T) is done and waits for operation y to be done"],
            ),
            (
                "two are waited for",
                off(&format!(
                    "{WAITING} {Y_OPERATING} operating/z operation-type/z=V permission/V pre-checked/z operate/z"
                )),
                "Operating",
                &["waits for operations y, z to be done"],
            ),
        ],
    );
}

#[test]
fn a_pod_in_service_needs_no_condition_unless_there_is_more_to_say() {
    for (needs_none, fixture) in [
        (true, on("SA")),
        (true, on("SA").expecting().held()),
        (false, on("SA stay-offline")),
        (false, on("SA operating/x pre-check/x")),
        (false, on("SA").annotated("no JSON")),
        (false, on("").expecting()),
        (false, off("")),
    ] {
        let found = explain(&fixture.view(), &NoRules, &[]);
        assert_eq!(found.needs_no_condition(), needs_none, "{found:?}");
    }
}

#[test]
fn pods_at_rest() {
    use ConditionStatus::{False, True};
    check(
        True,
        vec![
            ("in service", on("SA"), "InService", &["the pod is in service"]),
            (
                "in service with its consumer",
                on("SA").expecting().held(),
                "InService",
                &["the pod is in service"],
            ),
            ("in service, no gate", on("SA").without_gate(), "InService", &["the pod is in service"]),
            (
                "in service, told to stay out once it is out",
                on("SA stay-offline"),
                "InService",
                &["the pod is in service", STAY_OFFLINE],
            ),
            (
                "in service, half an announcement",
                on("SA operating/x pre-check/x"),
                "InService",
                &[
                    "the pod is in service. operation x is incomplete",
                    "operation-type.podopslifecycle.kusionstack.io/x is missing",
                ],
            ),
            (
                "the other half",
                on("SA operation-type/x=T"),
                "InService",
                &["operating.podopslifecycle.kusionstack.io/x is missing"],
            ),
        ],
    );
    check(
        False,
        vec![
            ("gate off", off(""), "EnteringService", &[SERVICE_READY_GATE, "turns True next"]),
            ("gate never written", off("").gate(None), "EnteringService", &["turns True next"]),
            ("not Ready", on("").ready(false), "NotReady", &["waits for the kubelet"]),
            (
                "the consumer is missing",
                on("").expecting(),
                "EnteringService",
                &["waits for Service/default/server", CONSUMER, "to add the pod to traffic"],
            ),
            (
                "stay-offline",
                off("stay-offline"),
                "StayOffline",
                &["until somebody removes the label", STAY_OFFLINE],
            ),
            (
                "stay-offline with the gate on",
                on("stay-offline"),
                "StayOffline",
                &["until somebody removes the label"],
            ),
            (
                "a wrong annotation",
                on("").annotated("no JSON"),
                "InvalidAnnotation",
                &[
                    "pod.kusionstack.io/available-conditions",
                    "until it is corrected the pod can't become available",
                ],
            ),
        ],
    );
}

#[test]
fn pods_that_nothing_is_done_for() {
    check(
        ConditionStatus::False,
        vec![
            (
                "being deleted",
                on("SA").terminating(),
                "Terminating",
                &["the pod is being deleted", "!operation", "!owners"],
            ),
            (
                "being deleted in an operation, held",
                off(PREPARING).held().terminating(),
                "Terminating",
                &[
                    "with it end operation x",
                    "when the owners of prot.podopslifecycle.kusionstack.io/e54505f60aa10ceb have released it",
                    "!permission",
                ],
            ),
        ],
    );
    let mut out = on(BEGUN);
    out.labels.remove(keys::CONTROL_LABEL);
    check(
        ConditionStatus::Unknown,
        vec![("not opted in", out, "NotOptedIn", &["kusionstack.io/control=true", "!operation"])],
    );
}
