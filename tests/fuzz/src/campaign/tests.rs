//! The fuzzer finds what is wrong with a target that has a known fault.

use super::*;
use crate::Outcome;

fn campaign(folder: &Path) -> Campaign {
    Campaign { inputs: 200_000, time: None, seed: 1, memory: u64::MAX, folder: folder.to_owned() }
}

/// Returns a target that reads `{"depth": {"count": 3}}`.
fn target(run: impl Fn(&Input) -> Result<Outcome, String> + Send + 'static) -> Target {
    let seed = Input::new(0, br#"{"depth":{"count":3},"name":"a"}"#.as_slice());
    Target::new("faulty", Format::Json, vec![seed], run)
}

fn count(input: &Input) -> Option<i64> {
    let document: serde_json::Value = serde_json::from_slice(&input.body).ok()?;
    document["depth"]["count"].as_i64()
}

#[test]
fn a_panic_is_found_stored_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = || {
        target(|input| {
            let count = count(input).unwrap_or_default();
            assert!(count < 1_000_000_000_000, "too much");
            Ok(Outcome::of(count))
        })
    };
    let report = run(faulty(), campaign(folder.path())).unwrap();
    let failure = report.failure.unwrap();
    assert_eq!(failure.what, "panic: too much");
    let stored = Input::from_file(&std::fs::read(&failure.file).unwrap());
    assert_eq!(stored, failure.input);
    assert!(try_input(&faulty(), &stored).is_err());
    let present = InputRecord::read(&present_input(folder.path(), "faulty")).unwrap();
    assert_eq!(present, Some(stored));
}

#[test]
fn a_guarantee_that_does_not_hold_is_found_behind_another_outcome() {
    let folder = tempfile::tempdir().unwrap();
    // Two steps: only inputs of the first one lead to the second one.
    let faulty = target(|input| {
        let Ok(document) = serde_json::from_slice::<serde_json::Value>(&input.body) else {
            return Ok(Outcome::of(0));
        };
        match (document["depth"].is_array(), document["name"].is_object()) {
            (true, true) => Err("both".to_owned()),
            found => Ok(Outcome::of(found)),
        }
    });
    let failure = run(faulty, campaign(folder.path())).unwrap().failure.unwrap();
    assert_eq!(failure.what, "both");
}

#[test]
fn too_much_memory_ends_a_campaign() {
    let folder = tempfile::tempdir().unwrap();
    let campaign = Campaign { memory: 1024, ..campaign(folder.path()) };
    let report = run(target(|_| Ok(Outcome::default())), campaign).unwrap();
    assert!(report.failure.unwrap().what.contains("MiB"));
    // Earlier if a large input came.
    assert!(report.inputs <= CHECK_EVERY, "{} inputs", report.inputs);
}

#[test]
fn a_campaign_ends_at_its_number_of_inputs_and_at_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let harmless = || target(|_| Ok(Outcome::default()));
    let report = run(harmless(), Campaign { inputs: 1000, ..campaign(folder.path()) }).unwrap();
    assert_eq!((report.inputs, report.failure, report.outcomes), (1000, None, 1));
    let time = Some(Duration::ZERO);
    let report = run(harmless(), Campaign { inputs: u64::MAX, time, ..campaign(folder.path()) }).unwrap();
    assert_eq!(report.failure, None);
    assert!(report.inputs <= CHECK_EVERY, "{} inputs", report.inputs);
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let inputs = || {
        let folder = tempfile::tempdir().unwrap();
        let (send, seen) = std::sync::mpsc::channel();
        let recording = target(move |input| {
            let _ = send.send(input.clone());
            Ok(Outcome::of(input.body.len()))
        });
        run(recording, Campaign { inputs: 500, ..campaign(folder.path()) }).unwrap();
        seen.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(inputs(), inputs());
}
