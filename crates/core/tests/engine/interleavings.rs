//! The safety properties hold, and everything comes to rest, whatever the order in which everybody acts.

use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, Pod, ReviewPolicy, Writer, review};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{Blockable, Model, Stored};
use crate::words::json_of;

pub(crate) const IDS: [&str; 3] = ["a", "b", "c"];
const TYPES: [&str; 2] = ["update", "restart"];

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Begin(usize, usize),
    BeginHalf(usize, bool),
    Finish(usize, bool),
    Undo(usize, usize),
    Kubelet,
    Traffic,
    /// The controller sees the version this many writes ago: an event that is late, doubled or out of order.
    Controller(usize),
    Webhook(bool),
    Checks(bool, bool, bool),
}

pub(crate) fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3usize, 0..2usize).prop_map(|(id, t)| Act::Begin(id, t)),
        1 => (0..3usize, any::<bool>()).prop_map(|(id, which)| Act::BeginHalf(id, which)),
        3 => (0..3usize, any::<bool>()).prop_map(|(id, both)| Act::Finish(id, both)),
        1 => (0..3usize, 0..2usize).prop_map(|(id, t)| Act::Undo(id, t)),
        4 => Just(Act::Kubelet),
        4 => Just(Act::Traffic),
        6 => prop_oneof![3 => Just(0usize), 1 => 0..5usize].prop_map(Act::Controller),
        2 => prop::bool::weighted(0.7).prop_map(Act::Webhook),
        1 => any::<(bool, bool, bool)>().prop_map(|(pre, post, refuses)| Act::Checks(pre, post, refuses)),
    ]
}

pub(crate) fn perform(model: &mut Model, act: &Act) {
    match *act {
        Act::Begin(id, t) => model.begin(IDS[id], TYPES[t]),
        Act::BeginHalf(id, operating) => model.write(|pod| {
            let stage = if operating { Stage::Operating } else { Stage::OperationType };
            pod.labels.insert(stage.key(IDS[id]), "update".to_owned());
        }),
        Act::Finish(id, true) => model.finish_both(IDS[id]),
        Act::Finish(id, false) => model.finish(IDS[id]),
        Act::Undo(id, t) => model.undo(IDS[id], TYPES[t]),
        Act::Kubelet => model.kubelet(),
        Act::Traffic => model.traffic(),
        Act::Controller(age) => {
            let seen = model.history[model.history.len().saturating_sub(age + 1)].clone();
            model.reconcile(&seen);
        }
        Act::Webhook(there) => model.webhook = there,
        Act::Checks(pre, post, refuses) => model.checks = Blockable { pre, post, refuses },
    }
}

/// Everybody who has begun finishes, or withdraws what was incomplete.
fn all_end(model: &mut Model, undo: bool) {
    model.checks = Blockable::default();
    model.settle();
    for id in IDS {
        if undo && (model.pod.has(Stage::Operating, id) || model.pod.has(Stage::OperationType, id)) {
            model.undo(id, "update");
        } else {
            model.finish_both(id);
        }
    }
    model.settle();
}

fn as_pod(stored: &Stored) -> Pod {
    serde_json::from_value(json_of(&stored.view())).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2500, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_is_safe_and_comes_to_rest(
        acts in vec(act(), 1..60),
        has_gate in prop::bool::weighted(0.9),
        consumer in prop::bool::weighted(0.8),
        webhook_at_end in any::<bool>(),
        undo in any::<bool>(),
    ) {
        let mut model = Model::in_service(has_gate, consumer);
        for act in &acts {
            perform(&mut model, act);
        }
        model.webhook = webhook_at_end;
        all_end(&mut model, undo);
        prop_assert_eq!(model.pod.protocol_labels(), vec![SERVICE_AVAILABLE]);
        prop_assert_eq!(&model.pod.refused, &None);
        prop_assert!(!has_gate || model.pod.gate == Some(ConditionStatus::True));
    }

    /// What operators, kubelet, traffic loops and the controller do is never refused as a foreign write, and the rules
    /// of the protocol hold after each of their writes, for any interleaving.
    #[test]
    fn every_write_of_the_engine_passes_the_review(acts in vec(act(), 1..60), webhook in any::<bool>()) {
        let policy = ReviewPolicy { strict: true, trusted: vec!["podward".to_owned()] };
        let mut model = Model::in_service(true, true);
        model.webhook = webhook;
        for act in &acts {
            if matches!(act, Act::Webhook(_) | Act::BeginHalf(..)) {
                continue;
            }
            let before = model.history.len();
            perform(&mut model, act);
            let username = if matches!(act, Act::Controller(_)) { "podward" } else { "operator" };
            for pair in model.history[before - 1..].windows(2) {
                let found = review(Some(&as_pod(&pair[0])), &as_pod(&pair[1]), &Writer { username, groups: &[] }, &policy);
                // The acts contain incomplete operations and cancels with another type.
                let is_meant = |text: &String| text.contains("incomplete") || text.contains("to cancel the operation");
                let denials: Vec<_> = found.denials.into_iter().filter(|text| !is_meant(text)).collect();
                prop_assert!(denials.is_empty(), "{:?}: {:?} -> {:?}: {:?}", act, pair[0], pair[1], denials);
            }
        }
    }
}
