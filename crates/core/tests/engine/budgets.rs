//! Room in disruption budgets, row by row as the API server's eviction handler has it; and that it never runs below
//! zero.

use std::collections::BTreeMap;

use podward_core::UnixNanos;
use podward_core::deletion::hold::BUDGET_REFUSAL;
use podward_core::deletion::{DisruptionBudget, EvictionPod, EvictionRoom, eviction_room, still_covers};
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);
const POD: EvictionPod<'_> = EvictionPod { name: "web-0", ready: true, beyond_budgets: false };

fn budget() -> DisruptionBudget {
    DisruptionBudget {
        name: "web".to_owned(),
        disruptions_allowed: 1,
        current_healthy: 3,
        desired_healthy: 2,
        ..DisruptionBudget::default()
    }
}

fn ago(seconds: i64) -> BTreeMap<String, UnixNanos> {
    BTreeMap::from([("web-0".to_owned(), UnixNanos(NOW.0 - seconds * 1_000_000_000))])
}

fn taken(budget: &DisruptionBudget, pod: &EvictionPod<'_>) -> Option<i32> {
    match eviction_room(std::slice::from_ref(budget), pod, NOW) {
        EvictionRoom::Take(taken) => Some(taken.disruptions_allowed),
        _ => None,
    }
}

fn refusal(budget: &DisruptionBudget) -> String {
    match eviction_room(std::slice::from_ref(budget), &POD, NOW) {
        EvictionRoom::None(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ready_pod_takes_room() {
    assert_eq!(taken(&budget(), &POD), Some(0));
    assert_eq!(eviction_room(&[], &POD, NOW), EvictionRoom::NotNeeded);
    let two = [budget(), DisruptionBudget { name: "other".to_owned(), ..budget() }];
    assert!(
        matches!(eviction_room(&two, &POD, NOW), EvictionRoom::None(text) if text.contains("more than one PodDisruptionBudget"))
    );
    assert_eq!(
        eviction_room(&two, &EvictionPod { beyond_budgets: true, ..POD }, NOW),
        EvictionRoom::NotNeeded
    );
}

#[test]
fn refusals_say_why() {
    let full = DisruptionBudget { disruptions_allowed: 0, current_healthy: 2, ..budget() };
    assert_eq!(
        refusal(&full),
        format!("{BUDGET_REFUSAL} The disruption budget web needs 2 healthy pods and has 2 currently")
    );
    let behind = DisruptionBudget { generation: 3, observed_generation: 2, ..budget() };
    assert!(refusal(&behind).contains("still being processed"));
    assert!(refusal(&DisruptionBudget { disruptions_allowed: -1, ..budget() }).starts_with(BUDGET_REFUSAL));
    let failed = Some(("SyncFailed".to_owned(), "no scale".to_owned()));
    assert!(
        refusal(&DisruptionBudget { refusal: failed, ..full.clone() })
            .ends_with("because it failed sync: no scale")
    );
    let other = Some(("InsufficientPods".to_owned(), "few".to_owned()));
    let enough = DisruptionBudget { current_healthy: 3, refusal: other, ..full };
    assert!(refusal(&enough).ends_with("(InsufficientPods): few"));
    let many = |number| (0..number).map(|number| (format!("x{number}"), NOW)).collect();
    assert_eq!(taken(&DisruptionBudget { disrupted_pods: many(2000), ..budget() }, &POD), Some(0));
    assert!(
        refusal(&DisruptionBudget { disrupted_pods: many(2001), ..budget() }).contains("too many evictions")
    );
}

#[test]
fn room_that_was_taken_is_not_taken_twice() {
    let at = |seconds| DisruptionBudget { disrupted_pods: ago(seconds), disruptions_allowed: 0, ..budget() };
    for age in [0, 89] {
        let held = EvictionRoom::Held(ago(age)["web-0"]);
        assert_eq!(eviction_room(&[at(age)], &POD, NOW), held, "it lapses by the time of its entry");
    }
    assert_eq!(taken(&at(90), &POD), Some(0), "renewed, and nothing more taken");
    assert_eq!(taken(&at(119), &POD), Some(0));
    assert!(
        matches!(eviction_room(&[at(120)], &POD, NOW), EvictionRoom::None(_)),
        "it has lapsed, and somebody else has it"
    );
    let lapsed = DisruptionBudget { disruptions_allowed: 2, ..at(120) };
    assert_eq!(taken(&lapsed, &POD), Some(1));
}

#[test]
fn a_pod_that_is_not_ready() {
    let pod = EvictionPod { ready: false, ..POD };
    let none = DisruptionBudget { disruptions_allowed: 0, ..budget() };
    let rows = [
        ("enough others are healthy", DisruptionBudget { current_healthy: 2, ..none.clone() }, true),
        ("too few are", DisruptionBudget { current_healthy: 1, ..none.clone() }, false),
        (
            "a budget that wants none",
            DisruptionBudget { current_healthy: 0, desired_healthy: 0, ..none.clone() },
            false,
        ),
        ("always", DisruptionBudget { current_healthy: 0, always_allows_unhealthy: true, ..none }, true),
    ];
    for (what, budget, expected) in rows {
        assert_eq!(eviction_room(&[budget], &pod, NOW) == EvictionRoom::NotNeeded, expected, "{what}");
    }
    assert_eq!(
        taken(&DisruptionBudget { current_healthy: 0, ..budget() }, &pod),
        Some(0),
        "it takes room where there is some"
    );
}

#[test]
fn the_model_detects_a_needless_refusal() {
    let out = EvictionPod { ready: false, ..POD };
    let wants_none =
        DisruptionBudget { current_healthy: 0, desired_healthy: 0, disruptions_allowed: 0, ..budget() };
    assert!(still_covers(std::slice::from_ref(&wants_none), &out));
    assert!(!still_covers(std::slice::from_ref(&wants_none), &POD));
    assert!(!still_covers(&[DisruptionBudget { current_healthy: 1, ..budget() }], &out));
    assert!(!still_covers(&[DisruptionBudget { generation: 1, ..wants_none.clone() }], &out));
    assert!(!still_covers(&[wants_none.clone(), wants_none], &out));
}

proptest! {
    /// Any number of evictions of any pods, also of the same one again and again: never more pods than were allowed.
    #[test]
    fn never_below_zero(allowed in 0..6i32, pods in vec((0..8usize, 0..100i64), 0..60)) {
        let mut budget = DisruptionBudget { disruptions_allowed: allowed, current_healthy: 8, desired_healthy: 8 - allowed, ..budget() };
        let mut now = NOW;
        for (pod, seconds) in pods {
            now = UnixNanos(now.0 + seconds * 1_000_000);
            let name = format!("web-{pod}");
            if let EvictionRoom::Take(taken) = eviction_room(&[budget.clone()], &EvictionPod { name: &name, ..POD }, now) {
                budget.disruptions_allowed = taken.disruptions_allowed;
                budget.disrupted_pods.insert(name, taken.at);
            }
            prop_assert!(budget.disruptions_allowed >= 0);
            let out = i32::try_from(budget.disrupted_pods.len()).unwrap();
            prop_assert_eq!(out + budget.disruptions_allowed, allowed);
        }
    }
}
