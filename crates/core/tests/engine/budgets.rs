//! Room in disruption budgets, row by row as the API server's eviction handler has it; and that it never runs below zero.

use std::collections::BTreeMap;

use podward_core::UnixNanos;
use podward_core::deletion::{Budget, Evictee, Room, room, still_covers};
use podward_core::hold::BUDGET_REFUSAL;
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);
const POD: Evictee<'_> = Evictee { name: "web-0", ready: true, beyond_budgets: false };

fn budget() -> Budget {
    Budget {
        name: "web".to_owned(),
        disruptions_allowed: 1,
        current_healthy: 3,
        desired_healthy: 2,
        ..Budget::default()
    }
}

fn ago(seconds: i64) -> BTreeMap<String, UnixNanos> {
    BTreeMap::from([("web-0".to_owned(), UnixNanos(NOW.0 - seconds * 1_000_000_000))])
}

fn taken(budget: &Budget, pod: &Evictee<'_>) -> Option<i32> {
    match room(std::slice::from_ref(budget), pod, NOW) {
        Room::Take(taken) => Some(taken.disruptions_allowed),
        _ => None,
    }
}

fn refusal(budget: &Budget) -> String {
    match room(std::slice::from_ref(budget), &POD, NOW) {
        Room::None(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ready_pod_takes_room() {
    assert_eq!(taken(&budget(), &POD), Some(0));
    assert_eq!(room(&[], &POD, NOW), Room::NotNeeded);
    let two = [budget(), Budget { name: "other".to_owned(), ..budget() }];
    assert!(
        matches!(room(&two, &POD, NOW), Room::None(text) if text.contains("more than one PodDisruptionBudget"))
    );
    assert_eq!(room(&two, &Evictee { beyond_budgets: true, ..POD }, NOW), Room::NotNeeded);
}

#[test]
fn refusals_say_why() {
    let full = Budget { disruptions_allowed: 0, current_healthy: 2, ..budget() };
    assert_eq!(
        refusal(&full),
        format!("{BUDGET_REFUSAL} The disruption budget web needs 2 healthy pods and has 2 currently")
    );
    let behind = Budget { generation: 3, observed_generation: 2, ..budget() };
    assert!(refusal(&behind).contains("still being processed"));
    assert!(refusal(&Budget { disruptions_allowed: -1, ..budget() }).starts_with(BUDGET_REFUSAL));
    let failed = Some(("SyncFailed".to_owned(), "no scale".to_owned()));
    assert!(
        refusal(&Budget { refusal: failed, ..full.clone() }).ends_with("because it failed sync: no scale")
    );
    let other = Some(("InsufficientPods".to_owned(), "few".to_owned()));
    let enough = Budget { current_healthy: 3, refusal: other, ..full };
    assert!(refusal(&enough).ends_with("(InsufficientPods): few"));
    let many = |number| (0..number).map(|number| (format!("x{number}"), NOW)).collect();
    assert_eq!(taken(&Budget { disrupted_pods: many(2000), ..budget() }, &POD), Some(0));
    assert!(refusal(&Budget { disrupted_pods: many(2001), ..budget() }).contains("too many evictions"));
}

#[test]
fn room_that_was_taken_is_not_taken_twice() {
    let at = |seconds| Budget { disrupted_pods: ago(seconds), disruptions_allowed: 0, ..budget() };
    assert_eq!(room(&[at(0)], &POD, NOW), Room::Held);
    assert_eq!(room(&[at(89)], &POD, NOW), Room::Held);
    assert_eq!(taken(&at(90), &POD), Some(0), "renewed, and nothing more taken");
    assert_eq!(taken(&at(119), &POD), Some(0));
    assert!(matches!(room(&[at(120)], &POD, NOW), Room::None(_)), "it has lapsed, and somebody else has it");
    let lapsed = Budget { disruptions_allowed: 2, ..at(120) };
    assert_eq!(taken(&lapsed, &POD), Some(1));
}

#[test]
fn a_pod_that_is_not_ready() {
    let pod = Evictee { ready: false, ..POD };
    let none = Budget { disruptions_allowed: 0, ..budget() };
    let rows = [
        ("enough others are healthy", Budget { current_healthy: 2, ..none.clone() }, true),
        ("too few are", Budget { current_healthy: 1, ..none.clone() }, false),
        (
            "a budget that wants none",
            Budget { current_healthy: 0, desired_healthy: 0, ..none.clone() },
            false,
        ),
        ("always", Budget { current_healthy: 0, always_allows_unhealthy: true, ..none }, true),
    ];
    for (what, budget, expected) in rows {
        assert_eq!(room(&[budget], &pod, NOW) == Room::NotNeeded, expected, "{what}");
    }
    assert_eq!(
        taken(&Budget { current_healthy: 0, ..budget() }, &pod),
        Some(0),
        "it takes room where there is some"
    );
}

#[test]
fn a_refusal_that_protects_nobody_is_seen() {
    let out = Evictee { ready: false, ..POD };
    let wants_none = Budget { current_healthy: 0, desired_healthy: 0, disruptions_allowed: 0, ..budget() };
    assert!(still_covers(std::slice::from_ref(&wants_none), &out));
    assert!(!still_covers(std::slice::from_ref(&wants_none), &POD));
    assert!(!still_covers(&[Budget { current_healthy: 1, ..budget() }], &out));
    assert!(!still_covers(&[Budget { generation: 1, ..wants_none.clone() }], &out));
    assert!(!still_covers(&[wants_none.clone(), wants_none], &out));
}

proptest! {
    /// Any number of evictions of any pods, also of the same one again and again: never more pods than were allowed.
    #[test]
    fn never_below_zero(allowed in 0..6i32, pods in vec((0..8usize, 0..100i64), 0..60)) {
        let mut budget = Budget { disruptions_allowed: allowed, current_healthy: 8, desired_healthy: 8 - allowed, ..budget() };
        let mut now = NOW;
        for (pod, seconds) in pods {
            now = UnixNanos(now.0 + seconds * 1_000_000);
            let name = format!("web-{pod}");
            if let Room::Take(taken) = room(&[budget.clone()], &Evictee { name: &name, ..POD }, now) {
                budget.disruptions_allowed = taken.disruptions_allowed;
                budget.disrupted_pods.insert(name, taken.at);
            }
            prop_assert!(budget.disruptions_allowed >= 0);
            let out = i32::try_from(budget.disrupted_pods.len()).unwrap();
            prop_assert_eq!(out + budget.disruptions_allowed, allowed);
        }
    }
}
