use json_patch::Patch;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::keys::{CONTROL_LABEL, EVIDENCE, HISTORY, Stage};
use crate::model::phase::OperationPhase;
use crate::{Pod, on_update};

const SECOND: i64 = 1_000_000_000;
const BEGAN: i64 = 1_764_000_000 * SECOND;

fn at(seconds: i64) -> UnixNanos {
    UnixNanos(BEGAN + seconds * SECOND)
}

/// Labels of the operation `a`, with the seconds at which they were set.
fn labels(stages: &[(Stage, i64)]) -> Labels {
    let mut labels: Labels =
        stages.iter().map(|(stage, seconds)| (stage.key("a"), at(*seconds).to_string())).collect();
    if labels.contains_key(&Stage::Operating.key("a")) {
        labels.insert(Stage::OperationType.key("a"), "update".to_owned());
    }
    if labels.contains_key(&Stage::Operated.key("a")) {
        labels.insert(Stage::DoneOperationType.key("a"), "update".to_owned());
    }
    labels
}

/// Records writes that lead from one of `versions` to the next, each with its second and its writer.
fn history(versions: &[(Labels, i64, Option<&str>)]) -> Vec<OperationRecord> {
    let evidence = json!({"lb": {"level": "PROVEN", "detail": ""}}).to_string();
    let mut text: Option<String> = None;
    for pair in versions.windows(2) {
        let [(before, ..), (after, now, writer)] = pair else { unreachable!() };
        let write = LabelWrite {
            before,
            after,
            history: text.as_deref(),
            evidence: Some(&evidence),
            writer: *writer,
            now: at(*now),
        };
        text = record(&write).or(text);
    }
    records(&versions.last().unwrap().0, text.as_deref())
}

fn begun() -> Labels {
    labels(&[(Stage::Operating, 0), (Stage::PreCheck, 0)])
}

fn granted() -> Labels {
    labels(&[(Stage::Operating, 0), (Stage::PreChecked, 2), (Stage::Operate, 10)])
}

fn finished() -> Labels {
    labels(&[(Stage::Operated, 60), (Stage::PostCheck, 60)])
}

fn completing() -> Labels {
    labels(&[(Stage::Operated, 60), (Stage::PostChecked, 61), (Stage::Completing, 61)])
}

#[test]
fn the_phases_of_a_whole_operation_are_recorded_and_add_up() {
    let found = history(&[
        (Labels::new(), 0, None),
        (begun(), 0, Some("jane")),
        (granted(), 10, None),
        (finished(), 60, Some("joe")),
        (completing(), 61, None),
        (Labels::new(), 70, Some("lb")),
    ]);
    let [record] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        record.spans(at(0)).collect::<Vec<_>>(),
        [
            (OperationPhase::PreChecking, 0, 2000),
            (OperationPhase::Preparing, 2000, 10_000),
            (OperationPhase::Operating, 10_000, 60_000),
            (OperationPhase::PostChecking, 60_000, 61_000),
            (OperationPhase::Completing, 61_000, 70_000),
        ]
    );
    assert_eq!(
        serde_json::to_value(record).unwrap(),
        json!({
            "id": "a", "type": "update", "began": "2025-11-24T16:00:00.000Z", "begunBy": "jane",
            "phases": [
                ["PreChecking", 0], ["Preparing", 2000], ["Operating", 10_000], ["PostChecking", 60_000],
                ["Completing", 61_000],
            ],
            "evidence": {"lb": "PROVEN"}, "finishedBy": "joe", "ended": 70_000, "outcome": "Completed",
        })
    );
}

#[test]
fn an_operation_that_is_not_over_has_the_times_of_its_labels() {
    let found = history(&[(Labels::new(), 0, None), (begun(), 0, Some("jane")), (granted(), 10, None)]);
    assert_eq!(found[0].spans(at(15)).last().unwrap(), (OperationPhase::Operating, 10_000, 15_000));
    assert_eq!((found[0].outcome, found[0].begun_by.as_deref()), (None, Some("jane")));
    let unseen = records(&granted(), None);
    assert_eq!(unseen[0].phases, [(OperationPhase::Preparing, 0), (OperationPhase::Operating, 8000)]);
}

#[test]
fn a_cancelled_operation_names_who_cancelled_it() {
    let found =
        history(&[(Labels::new(), 0, None), (begun(), 0, Some("jane")), (Labels::new(), 3, Some("joe"))]);
    assert_eq!(
        (found[0].outcome, found[0].finished_by.as_deref()),
        (Some(RunOutcome::Cancelled), Some("joe"))
    );
    assert_eq!(found[0].ended, Some(3000));
}

#[test]
fn an_operation_that_is_begun_again_is_another_one() {
    let again = labels(&[(Stage::Operating, 65), (Stage::PreCheck, 65), (Stage::Preparing, 65)]);
    let found = history(&[(granted(), 10, None), (finished(), 60, None), (again, 65, Some("jane"))]);
    let outcomes: Vec<_> = found.iter().map(|record| (record.outcome, record.ended)).collect();
    // It was first seen in the phase Preparing, which began at 2.
    assert_eq!(outcomes, [(Some(RunOutcome::Completed), Some(63_000)), (None, None)]);
    assert_eq!(found[1].phases, [(OperationPhase::PreChecking, 0)]);
}

fn write<'a>(before: &'a Labels, after: &'a Labels, history: Option<&'a str>, now: i64) -> LabelWrite<'a> {
    LabelWrite { before, after, history, evidence: None, writer: Some("jane"), now: at(now) }
}

#[test]
fn other_writes_are_not_recorded_and_the_history_stays_short() {
    let idle = Labels::new();
    let (begun, granted) = (begun(), granted());
    assert_eq!(record(&write(&idle, &idle, None, 1)), None);
    assert_eq!(record(&write(&begun, &granted, Some("[]"), 1)), None);
    let mut text: Option<String> = None;
    for round in 0..40 {
        text = record(&write(&idle, &begun, text.as_deref(), round));
        text = record(&write(&begun, &idle, text.as_deref(), round));
    }
    let text = text.unwrap();
    assert!(text.len() <= MAX_BYTES, "{}", text.len());
    assert_eq!(records(&idle, Some(&text)).len(), MAX_RECORDS);
}

fn pod(labels: &Labels, history: Option<&str>) -> Value {
    let mut labels = labels.clone();
    labels.insert(CONTROL_LABEL.to_owned(), "true".to_owned());
    let mut pod = json!({"metadata": {"name": "web", "labels": labels}});
    if let Some(history) = history {
        let evidence = json!({"lb": {"level": "BOUNDED", "detail": ""}}).to_string();
        pod["metadata"]["annotations"] = json!({HISTORY: history, EVIDENCE: evidence});
    }
    pod
}

fn read(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// Returns the history after a write from `old` to `new`.
fn admitted(old: &Value, new: &Value) -> Option<String> {
    let mut patched = new.clone();
    let patch = on_update(Some(&read(old)), &read(new), at(1));
    json_patch::patch(&mut patched, &with_history(patch, Some(&read(old)), &read(new), "jane", at(1)))
        .unwrap();
    let again = with_history(
        on_update(Some(&read(old)), &read(&patched), at(2)),
        Some(&read(old)),
        &read(&patched),
        "jane",
        at(2),
    );
    assert!(again.0.is_empty(), "once is enough: {again:?}");
    patched["metadata"]["annotations"][HISTORY].as_str().map(ToOwned::to_owned)
}

#[test]
fn the_webhook_extends_the_write_of_the_operator() {
    let mut announced = labels(&[(Stage::Operating, 0)]);
    let text = admitted(&pod(&Labels::new(), None), &pod(&announced, None)).unwrap();
    assert_eq!(parse(&text)[0].begun_by.as_deref(), Some("jane"));
    // A client that applies a manifest without the history does not lose it.
    announced.insert(Stage::PreCheck.key("a"), at(1).to_string());
    let restored = admitted(&pod(&announced, Some(&text)), &pod(&announced, None));
    assert_eq!(restored.as_deref(), Some(text.as_str()));
    let by_the_controller = pod(&Labels::new(), Some("[1]"));
    assert_eq!(admitted(&pod(&announced, Some(&text)), &by_the_controller).as_deref(), Some("[1]"));
    let copied = read(&pod(&Labels::new(), Some(&text)));
    assert_eq!(with_history(Patch(Vec::new()), None, &copied, "jane", at(0)).0.len(), 1);
}

#[test]
fn an_operation_whose_end_was_not_recorded_is_forgotten() {
    let idle = Labels::new();
    let begun = begun();
    let text = record(&write(&idle, &begun, None, 0)).unwrap();
    assert!(records(&idle, Some(&text)).is_empty());
    let text = record(&write(&idle, &begun, Some(&text), 9)).unwrap();
    let found = records(&begun, Some(&text));
    assert_eq!(found.iter().map(|record| record.began).collect::<Vec<_>>(), [at(9)]);
}

#[test]
fn what_others_write_does_no_harm() {
    // The first and the last time that a label can contain.
    for nanos in [i64::MIN, i64::MAX] {
        let mut labels = begun();
        labels.insert(Stage::PreCheck.key("a"), nanos.to_string());
        let text = text(of_deleted(&labels, None, None, at(0)));
        // Milliseconds before the first time is out of range, and is skipped.
        let expected = usize::from(nanos > i64::MIN);
        assert_eq!(parse(&text).len(), expected, "{text}");
    }
    let forged = json!([{"id": "x".repeat(5000), "type": "", "began": "2026-01-01T10:00:00Z", "phases": []}]);
    assert!(records(&Labels::new(), Some(&forged.to_string())).is_empty());
    let backwards = json!([{
        "id": "b", "type": "", "began": "2026-01-01T10:00:00Z", "ended": 1, "outcome": "Cancelled",
        "phases": [["Operating", u64::MAX], ["PreChecking", 0]],
    }]);
    let found = records(&Labels::new(), Some(&backwards.to_string()));
    assert!(found[0].spans(at(0)).all(|(_, start, end)| start <= end));
    assert!(found[0].at(u64::MAX) > found[0].began);
}

proptest! {
    #[test]
    fn garbage_is_no_history(text in ".{0,40}", entry in "[a-z0-9\"{}:,\\[\\]]{0,40}") {
        for text in [text, format!("[{entry}]")] {
            let found = records(&begun(), Some(&text));
            prop_assert!(found.iter().any(|record| record.id == "a"));
        }
    }
}
