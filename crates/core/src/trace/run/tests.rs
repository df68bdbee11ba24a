use super::*;

const UID: &str = "uid-1";

/// The labels of the operation `a`, each stage with its time.
fn labels(stages: &[(Stage, i64)]) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> =
        stages.iter().map(|(stage, at)| (stage.key("a"), at.to_string())).collect();
    if stages.iter().any(|(stage, _)| *stage == Stage::Operating) {
        labels.insert(Stage::OperationType.key("a"), "update".to_owned());
    }
    labels
}

/// The versions of a pod in which an operation goes all its way.
fn whole() -> Vec<(BTreeMap<String, String>, i64)> {
    use Stage::{Completing, Operate, Operated, Operating, PostCheck, PreCheck, PreChecked, Preparing};
    vec![
        (labels(&[(Operating, 1), (PreCheck, 10)]), 11),
        (labels(&[(Operating, 1), (PreChecked, 20), (Preparing, 20)]), 21),
        (labels(&[(Operating, 1), (PreChecked, 20), (Operate, 30)]), 31),
        (labels(&[(Operated, 40), (PostCheck, 40)]), 41),
        (labels(&[(Operated, 40), (Stage::PostChecked, 50), (Completing, 50)]), 51),
        (BTreeMap::new(), 60),
    ]
}

/// The spans that somebody gives who sees these versions, from the one on in which there is an operation.
fn seen<'v>(
    versions: impl IntoIterator<Item = &'v (BTreeMap<String, String>, i64)>,
    is_new: bool,
) -> Vec<OperationSpan> {
    let (mut run, mut spans): (Option<OperationRun>, Vec<OperationSpan>) = (None, Vec::new());
    for (labels, now) in versions {
        let (operations, now) = (Operations::parse(labels), UnixNanos(*now));
        if let Some(present) = &mut run {
            let (more, is_over) = present.observe(labels, &operations, now);
            spans.extend(more);
            if is_over {
                run = None;
            }
        }
        if run.is_none() {
            let begun = OperationRun::begin(UID, "a", labels, &operations, is_new || !spans.is_empty(), now);
            run = begun.map(|(run, more)| {
                spans.extend(more);
                run
            });
        }
    }
    spans
}

fn phases(spans: &[OperationSpan]) -> Vec<(OperationPhase, i64, i64)> {
    let phase = |span: &OperationSpan| match span.kind {
        SpanKind::Phase { phase, .. } => Some((phase, span.start.0, span.end.0)),
        SpanKind::Run { .. } => None,
    };
    spans.iter().filter_map(phase).collect()
}

fn outcomes(spans: &[OperationSpan]) -> Vec<(RunOutcome, OperationPhase, i64, i64)> {
    let run = |span: &OperationSpan| match span.kind {
        SpanKind::Run { outcome, first, .. } => Some((outcome, first, span.start.0, span.end.0)),
        SpanKind::Phase { .. } => None,
    };
    spans.iter().filter_map(run).collect()
}

#[test]
fn a_whole_operation_is_one_root_and_its_phases_without_gaps() {
    let spans = seen(&whole(), true);
    let expected = [
        (OperationPhase::PreChecking, 10, 20),
        (OperationPhase::Preparing, 20, 30),
        (OperationPhase::Operating, 30, 40),
        (OperationPhase::PostChecking, 40, 50),
        (OperationPhase::Completing, 50, 60),
    ];
    assert_eq!(phases(&spans), expected);
    assert_eq!(outcomes(&spans), [(RunOutcome::Completed, OperationPhase::PreChecking, 10, 60)]);
    let root = spans.last().unwrap();
    assert_eq!((root.id, root.parent), (root_of(UID, "a", "1"), None));
    for span in &spans {
        assert_eq!(span.trace, trace_of(UID, "a"));
        assert!(span.id == root.id || span.parent == Some(root.id));
    }
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| span.id.0).collect();
    assert_eq!(ids.len(), spans.len());
}

/// Whichever versions are missed, what is told of is gapless, and what was seen has the same ids.
#[test]
fn versions_that_are_missed_leave_no_gap() {
    let versions = whole();
    let all = seen(&versions, true);
    for missed in 0..1 << (versions.len() - 1) {
        let kept: Vec<_> = versions
            .iter()
            .enumerate()
            .filter(|(at, _)| missed & (1 << at) == 0)
            .map(|(_, kept)| kept)
            .collect();
        let spans = seen(kept.iter().copied(), true);
        let phases = phases(&spans);
        for pair in phases.windows(2) {
            assert_eq!(pair[0].2, pair[1].1, "{missed:b}: {phases:?}");
            assert!(pair[0].0 < pair[1].0, "{missed:b}: {phases:?}");
        }
        if kept.len() < 2 {
            assert_eq!(spans, [], "nothing was seen but that there is nothing");
            continue;
        }
        let [(RunOutcome::Completed, _, start, end)] = outcomes(&spans)[..] else {
            // Nobody can know that it was finished where the last that was seen is that it was at work.
            assert_eq!(outcomes(&spans).len(), 1, "{missed:b}");
            continue;
        };
        assert_eq!((start, end), (phases[0].1, phases[phases.len() - 1].2), "{missed:b}");
        for span in spans.iter().filter(|span| span.parent.is_some()) {
            let same = all.iter().find(|other| other.start == span.start && other.parent.is_some());
            let known = kept.iter().any(|(labels, _)| labels.contains_key(&run_label("a")));
            assert!(!known || same.is_some_and(|same| same.id == span.id), "{missed:b}: {span:?}");
        }
    }
}

#[test]
fn who_comes_later_tells_only_of_what_is_still_to_come() {
    let versions = whole();
    let (mut first, second) = (seen(&versions[..3], true), seen(&versions[2..], false));
    assert_eq!(phases(&second)[0], (OperationPhase::Operating, 30, 40));
    assert_eq!(outcomes(&second), [(RunOutcome::Completed, OperationPhase::Operating, 30, 60)]);
    // Both together are what one alone would have told, but for when the whole began.
    first.extend(second);
    let alone = seen(&versions, true);
    let ids = |spans: &[OperationSpan]| spans.iter().map(|span| span.id).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&alone));
    assert_eq!(phases(&first), phases(&alone));
}

#[test]
fn an_undone_operation_is_cancelled_where_it_was() {
    let versions = [&whole()[..2], &[(BTreeMap::new(), 25)]].concat();
    let spans = seen(&versions, true);
    assert_eq!(phases(&spans), [(OperationPhase::PreChecking, 10, 20), (OperationPhase::Preparing, 20, 25)]);
    assert_eq!(outcomes(&spans), [(RunOutcome::Cancelled, OperationPhase::PreChecking, 10, 25)]);
}

#[test]
fn an_id_that_is_used_again_is_another_run_in_the_same_trace() {
    use Stage::{Operating, PreCheck};
    let again = |at: i64| (labels(&[(Operating, 2), (PreCheck, at)]), at + 1);
    // After the first was over, and in its midst.
    for (before, outcome) in
        [(6, RunOutcome::Completed), (5, RunOutcome::Completed), (3, RunOutcome::BegunAgain)]
    {
        let versions = [&whole()[..before], &[again(70), (BTreeMap::new(), 80)]].concat();
        let spans = seen(&versions, true);
        let outcomes = outcomes(&spans);
        assert_eq!(outcomes.len(), 2, "{before}");
        assert_eq!(outcomes[0].0, outcome, "{before}");
        assert_eq!(outcomes[1], (RunOutcome::Cancelled, OperationPhase::PreChecking, 70, 80), "{before}");
        let roots: Vec<&OperationSpan> = spans.iter().filter(|span| span.parent.is_none()).collect();
        assert!(roots[0].id != roots[1].id && roots[0].trace == roots[1].trace);
    }
}

#[test]
fn a_run_that_goes_back_goes_on() {
    use Stage::{Operating, PreCheck, Preparing};
    let back = (labels(&[(Operating, 1), (PreCheck, 35), (Preparing, 35)]), 36);
    let versions = [&whole()[..3], &[back]].concat();
    let spans = seen(&versions, true);
    assert_eq!(phases(&spans)[2], (OperationPhase::Operating, 30, 35));
    assert_eq!(outcomes(&spans), []);
}

#[test]
fn a_label_that_comes_later_than_its_phase_makes_no_other_phase() {
    use Stage::{Operating, PreCheck};
    let versions = [(labels(&[(Operating, 1)]), 5), (labels(&[(Operating, 1), (PreCheck, 9)]), 10)];
    let versions = [&versions[..], &whole()[1..2]].concat();
    assert_eq!(phases(&seen(&versions, true)), [(OperationPhase::PreChecking, 5, 20)]);
}

#[test]
fn clocks_that_differ_and_garbage_give_spans_that_end_after_they_began() {
    use Stage::{Operate, Operating, PreCheck, PreChecked};
    let mut versions = [
        (labels(&[(Operating, 1), (PreCheck, 100)]), 11),
        (labels(&[(Operating, 1), (PreChecked, 20), (Operate, 30)]), 31),
        (BTreeMap::new(), 32),
    ];
    versions[1].0.insert(PreChecked.key("a"), "soon".to_owned());
    let spans = seen(&versions, true);
    assert!(spans.iter().all(|span| span.start <= span.end), "{spans:?}");
    assert_eq!(
        phases(&spans),
        [(OperationPhase::PreChecking, 100, 100), (OperationPhase::Operating, 100, 100)]
    );
}

#[test]
fn half_an_announcement_is_no_operation() {
    let mut half = labels(&[(Stage::Operating, 1)]);
    half.remove(&Stage::OperationType.key("a"));
    assert_eq!(OperationRun::begin(UID, "a", &half, &Operations::parse(&half), true, UnixNanos(5)), None);
}

#[test]
fn answers_go_to_the_phase_that_they_were_asked_for() {
    let versions = whole();
    let (labels, now) = &versions[1];
    let (mut run, _) =
        OperationRun::begin(UID, "a", labels, &Operations::parse(labels), true, UnixNanos(*now)).unwrap();
    assert_eq!(run.operation_type(), "update");
    let note =
        |hook: &str, phase, event| HookReport { hook: hook.to_owned(), phase, since: UnixNanos(20), event };
    let proven = note("lb", HookPhase::Prepare, HookEvent::Done(EvidenceLevel::Proven));
    run.add_report(&proven, UnixNanos(25));
    run.add_report(&proven, UnixNanos(26));
    run.add_report(&note("lb", HookPhase::Complete, HookEvent::Done(EvidenceLevel::Proven)), UnixNanos(27));
    run.add_report(&note("dns", HookPhase::Prepare, HookEvent::Proceeded), UnixNanos(28));
    let (labels, now) = &versions[2];
    let (spans, is_over) = run.observe(labels, &Operations::parse(labels), UnixNanos(*now));
    assert!(!is_over);
    let SpanKind::Phase { reports, .. } = &spans[0].kind else { panic!("{spans:?}") };
    let told: Vec<_> = reports.iter().map(|report| (report.note.hook.as_str(), report.at.0)).collect();
    assert_eq!(told, [("lb", 25), ("dns", 28)]);
    let spans = run.pod_gone();
    let SpanKind::Run { outcome, evidence, .. } = spans[1].kind else { panic!("{spans:?}") };
    assert_eq!((outcome, evidence), (RunOutcome::PodGone, Some(EvidenceLevel::TimedOut)));
    assert_eq!(spans[1].end, UnixNanos(31), "when the pod was last seen");
}
