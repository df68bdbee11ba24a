//! Hooks that answer in any order, too late or never, come, go and change, while pods are operated on and end at any
//! moment and the process restarts: the safety properties hold, and everything comes to rest.

use podward_core::hooks::{
    DeadlinePolicy, GateTiming, Hook, HookAnswer, HookPhase, Selector, is_hook_finalizer,
};
use podward_core::keys::{SERVICE_AVAILABLE, Stage};
use podward_core::{ConditionStatus, PostCheckRejection};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::hook_model::{TIER, done, hook};
use crate::interleavings::{self, IDS};
use crate::model::{Blockable, Model};

const HOOKS: [&str; 3] = ["mesh", "registry", "audit"];

#[derive(Clone, Debug)]
enum Act {
    Usual(interleavings::Act),
    Answer(usize, Reply),
    Register(Hook),
    Deregister(usize),
    Relabel(bool),
    Containers(bool),
    Sleep(i64),
    Restart,
    Terminate,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Done,
    Pending,
    No,
}

fn timing() -> impl Strategy<Value = GateTiming> {
    prop_oneof![Just(GateTiming::BeforeGate), Just(GateTiming::AfterGate)]
}

fn policy() -> impl Strategy<Value = DeadlinePolicy> {
    prop_oneof![Just(DeadlinePolicy::Hold), Just(DeadlinePolicy::Proceed), Just(DeadlinePolicy::Cancel)]
}

prop_compose! {
    fn any_hook()(
        name in 0..HOOKS.len(),
        phases in prop::sample::subsequence(
            vec![HookPhase::PreCheck, HookPhase::Prepare, HookPhase::PostCheck, HookPhase::Complete, HookPhase::Release], 1..=5),
        usual in prop::bool::weighted(0.6),
        selects in prop::bool::weighted(0.2),
        order in -1..=1i32,
        seconds in 1..100i64,
        deadline_policy in policy(),
        tells in any::<bool>(),
        prepare_timing in timing(),
        complete_timing in timing(),
    ) -> Hook {
        let phases = if usual { vec![HookPhase::Prepare, HookPhase::Complete, HookPhase::Release] } else { phases };
        let pod_selector = if selects {
            Selector::new([(TIER.to_owned(), "front".to_owned())].into(), []).unwrap()
        } else {
            Selector::everything()
        };
        Hook {
            phases, pod_selector, order, deadline_policy, prepare_timing, complete_timing,
            deadline_nanoseconds: seconds * 1_000_000_000,
            post_check_rejection: if tells { PostCheckRejection::Rollback } else { PostCheckRejection::Hold },
            ..hook(HOOKS[name])
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    let reply = prop_oneof![6 => Just(Reply::Done), 1 => Just(Reply::Pending), 1 => Just(Reply::No)];
    prop_oneof![
        14 => interleavings::act().prop_map(Act::Usual),
        8 => (0..HOOKS.len(), reply).prop_map(|(hook, reply)| Act::Answer(hook, reply)),
        1 => any_hook().prop_map(Act::Register),
        1 => (0..HOOKS.len()).prop_map(Act::Deregister),
        1 => any::<bool>().prop_map(Act::Relabel),
        1 => prop::bool::weighted(0.7).prop_map(Act::Containers),
        1 => (1..90i64).prop_map(Act::Sleep),
        1 => Just(Act::Restart),
    ]
}

fn perform(model: &mut Model, act: &Act) {
    match act {
        Act::Usual(act) => interleavings::perform(model, act),
        Act::Answer(hook, reply) => {
            let answer = match reply {
                Reply::Done => done(),
                Reply::Pending => HookAnswer::Open { message: "3 sessions".to_owned() },
                Reply::No => HookAnswer::Rejected { reason: "not now".to_owned() },
            };
            model.answer(HOOKS[*hook], &answer);
        }
        Act::Register(hook) => model.register(hook.clone()),
        Act::Deregister(hook) => model.deregister(HOOKS[*hook]),
        Act::Relabel(front) => model.relabel(front.then_some("front")),
        Act::Containers(ready) => model.containers(*ready),
        Act::Sleep(seconds) => model.now += seconds * 1_000_000_000,
        Act::Restart => model.restart(),
        Act::Terminate => model.terminate(),
    }
}

fn all_end(model: &mut Model, undo: bool) {
    model.checks = Blockable::default();
    model.containers(true);
    model.settle_with_hooks();
    for id in IDS {
        if undo && (model.pod.has(Stage::Operating, id) || model.pod.has(Stage::OperationType, id)) {
            model.undo(id, "update");
        } else {
            model.finish_both(id);
        }
    }
    model.settle_with_hooks();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn hooks_in_any_interleaving(
        hooks in vec(any_hook(), 0..3),
        acts in vec(act(), 1..70),
        has_gate in prop::bool::weighted(0.9),
        consumer in prop::bool::weighted(0.4),
        webhook_at_end in any::<bool>(),
        undo in any::<bool>(),
    ) {
        let mut model = Model::created(has_gate, consumer);
        hooks.into_iter().for_each(|hook| model.register(hook));
        for act in &acts {
            perform(&mut model, act);
        }
        model.webhook = webhook_at_end;
        all_end(&mut model, undo);
        prop_assert_eq!(model.pod.protocol_labels(), vec![SERVICE_AVAILABLE]);
        prop_assert_eq!(&model.pod.refused, &None);
        prop_assert!(!has_gate || model.pod.gate == Some(ConditionStatus::True));
        model.assert_held_by_exactly_its_hooks();
        let at_rest = model.pod.clone();
        model.restart();
        prop_assert!(!model.reconcile_latest(), "writes at rest: {:?} -> {:?}", at_rest, model.pod);
    }

    /// A pod that ends at any moment is gone when every hook that held it has forgotten it.
    #[test]
    fn pods_end_at_any_moment(
        hooks in vec(any_hook(), 0..3),
        before in vec(act(), 1..40),
        after in vec(act(), 0..15),
    ) {
        let mut model = Model::created(true, true);
        hooks.into_iter().for_each(|hook| model.register(hook));
        before.iter().for_each(|act| perform(&mut model, act));
        perform(&mut model, &Act::Terminate);
        after.iter().for_each(|act| perform(&mut model, act));
        model.settle_with_hooks();
        let left: Vec<&String> = model.pod.finalizers.iter().filter(|name| is_hook_finalizer(name)).collect();
        prop_assert!(left.is_empty(), "{:?}", left);
        prop_assert!(model.pod.finalizers.contains(&"example.com/not-ours".to_owned()));
    }
}
