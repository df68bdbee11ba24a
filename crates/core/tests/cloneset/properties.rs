//! Random events, and what must hold after each of them and at the end.

use podward_core::cloneset::{Amount, Creations, NotReadyKeys, Plan, PodStep, SetSpec, State, UpdateKind};
use proptest::prelude::*;

use crate::model::{Model, lifecycle, spec};

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Reconcile,
    /// The controller ends after some writes, and another one begins.
    Crash(usize),
    Operator(usize),
    Kubelet(usize),
    Podward(usize),
    /// The operation of a pod is cancelled, or finished.
    EndOperation(usize, bool),
    Deadline(usize),
    Deliver(usize),
    DeliverSet,
    Relist,
    Specify(usize, bool),
    ForeignDelete(usize),
    Replicas(u32),
    Template(u32),
    /// Another image, or the one before.
    Image,
    Limits(u32, Amount, u32),
    Pause(bool),
    Exclude(bool),
    Hooks(Option<[bool; 3]>, [bool; 3]),
    Kind(UpdateKind),
    ScaleLimit(Option<u32>),
}

fn amounts() -> impl Strategy<Value = Amount> {
    prop_oneof![(0..5_u32).prop_map(Amount::Count), (0..=100_u32).prop_map(Amount::Percent)]
}

fn events() -> impl Strategy<Value = Event> {
    let index = 0..8_usize;
    let kinds = prop_oneof![
        Just(UpdateKind::Recreate),
        Just(UpdateKind::InPlaceIfPossible),
        Just(UpdateKind::InPlaceOnly),
        Just(UpdateKind::OnDelete)
    ];
    prop_oneof![
        12 => Just(Event::Reconcile),
        2 => (0..4_usize).prop_map(Event::Crash),
        8 => index.clone().prop_map(Event::Operator),
        10 => index.clone().prop_map(Event::Kubelet),
        4 => index.clone().prop_map(Event::Podward),
        2 => (index.clone(), any::<bool>()).prop_map(|(pod, is)| Event::EndOperation(pod, is)),
        2 => index.clone().prop_map(Event::Deadline),
        10 => index.clone().prop_map(Event::Deliver),
        3 => Just(Event::DeliverSet),
        2 => Just(Event::Relist),
        2 => (index.clone(), any::<bool>()).prop_map(|(pod, is)| Event::Specify(pod, is)),
        1 => index.prop_map(Event::ForeignDelete),
        2 => (0..6_u32).prop_map(Event::Replicas),
        2 => (0..6_u32).prop_map(Event::Template),
        2 => Just(Event::Image),
        1 => (0..3_u32, amounts(), 0..3_u32).prop_map(|(down, partition, surge)| Event::Limits(down, partition, surge)),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => any::<bool>().prop_map(Event::Exclude),
        1 => (any::<Option<[bool; 3]>>(), any::<[bool; 3]>()).prop_map(|(hooks, options)| Event::Hooks(hooks, options)),
        1 => kinds.prop_map(Event::Kind),
        1 => prop::option::of(1..4_u32).prop_map(Event::ScaleLimit),
    ]
}

fn happen(model: &mut Model, event: Event) {
    let set = &mut model.set.spec;
    match event {
        Event::Reconcile => model.reconcile(usize::MAX),
        Event::Crash(writes) => {
            model.reconcile(writes);
            model.relist();
        }
        Event::Operator(pod) => model.operate(pod),
        Event::Kubelet(pod) => model.run(pod),
        Event::Podward(pod) => model.permit(pod),
        Event::EndOperation(pod, is_finished) => model.end_operation(pod, is_finished),
        Event::Deadline(pod) => model.expire(pod),
        Event::Deliver(pod) => model.deliver(pod),
        Event::DeliverSet => model.deliver_set(),
        Event::Relist => model.relist(),
        Event::Specify(pod, delete) => model.specify(pod, delete),
        Event::ForeignDelete(pod) => model.delete_foreign(pod),
        Event::Replicas(replicas) => set.replicas = replicas,
        Event::Template(template) => model.set.template = template,
        Event::Image => model.set.template = (model.set.template + 3) % 6,
        Event::Limits(down, partition, surge) => {
            (set.max_unavailable, set.partition) = (Amount::Count(down), partition);
            set.max_surge = Amount::Count(surge);
        }
        Event::Pause(paused) => set.paused = paused,
        Event::Exclude(exclude) => set.exclude_preparing_delete = exclude,
        Event::Hooks(hooks, options) => set.lifecycle = hooks.map(|hooks| lifecycle(hooks, options)),
        Event::Kind(kind) => set.update = kind,
        Event::ScaleLimit(limit) => set.scale_max_unavailable = limit.map(Amount::Count),
    }
}

/// Everyone does what is asked of them, until nothing happens any more. If pods go on without their hooks, the operators are
/// silent.
fn settle(model: &mut Model) {
    model.set.spec.paused = false;
    let hooks = model.set.spec.lifecycle.clone().unwrap_or_default();
    let hooks = [hooks.pre_normal, hooks.in_place_update, hooks.pre_delete];
    let silent = hooks.iter().flatten().all(|hook| hook.proceeds);
    let mut rounds = 0;
    loop {
        model.relist();
        let Plan { create, steps, .. } = model.plan();
        if (create, steps.len()) == (Creations::default(), 0) && is_settled(model) {
            return;
        }
        rounds += 1;
        assert!(rounds < 400, "the set does not settle: next {:#?} of {model:#?}", model.plan());
        model.reconcile(usize::MAX);
        for pod in 0..model.pods.len() {
            match silent {
                true => model.expire(pod),
                false => model.operate(pod),
            }
            model.permit(pod);
            model.run(pod);
        }
    }
}

/// Pods get another image, and no operator confirms them.
fn begin_update(model: &mut Model) {
    settle(model);
    happen(model, Event::Image);
    for _ in 0..20 {
        model.relist();
        model.reconcile(usize::MAX);
        for pod in 0..model.pods.len() {
            let state = model.pods.values().nth(pod).and_then(|stored| stored.pod.state);
            if state == Some(State::PreparingUpdate) {
                model.operate(pod);
            }
            model.permit(pod);
            model.run(pod);
        }
    }
}

fn is_settled(model: &Model) -> bool {
    let set = &model.set.spec;
    let pods = model.stored_pods();
    let updated = pods.iter().filter(|pod| pod.is_updated()).count();
    let all_in_place = model.plan().not_in_place.is_empty();
    let is_done = |pod: &podward_core::cloneset::SetPod| {
        pod.is_available()
            && pod.state == Some(State::Normal)
            && pod.not_ready == Some(NotReadyKeys::default())
            && !pod.unconfirmed
            && pod.rearmed.is_none()
            && !pod.specified_delete
    };
    let wanted = (set.replicas - set.partition()) as usize;
    pods.len() == set.replicas as usize
        && pods.iter().all(is_done)
        && (updated >= wanted || set.update == UpdateKind::OnDelete || !all_in_place)
}

fn models() -> impl Strategy<Value = Model> {
    let hooks = (any::<Option<[bool; 3]>>(), any::<[bool; 3]>());
    (0..6_u32, hooks, 0..3_u32, 0..3_u32, 1..3_u8, any::<bool>()).prop_map(
        |(replicas, (hooks, options), down, surge, batches, operations)| {
            let lifecycle = hooks.map(|hooks| lifecycle(hooks, options));
            let (max_unavailable, max_surge) = (Amount::Count(down), Amount::Count(surge));
            Model::new(
                SetSpec { lifecycle, max_unavailable, max_surge, ..spec(replicas) },
                batches,
                operations,
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The limits hold after each write, whatever happens in whatever order, and the set settles.
    #[test]
    fn limits_hold_and_sets_settle(
        mut model in models(),
        is_updated in any::<bool>(),
        events in prop::collection::vec(events(), 0..120),
    ) {
        if is_updated {
            begin_update(&mut model);
        }
        for event in events {
            happen(&mut model, event);
        }
        settle(&mut model);
    }

    /// A plan that was carried out completely is followed by one that does something else, or nothing.
    #[test]
    fn nothing_is_done_twice(mut model in models(), events in prop::collection::vec(events(), 0..60)) {
        for event in events {
            happen(&mut model, event);
        }
        model.relist();
        let (pods, steps) = (model.seen_pods(), model.plan().steps);
        model.reconcile(usize::MAX);
        let after = model.seen_pods();
        for step in model.plan().steps {
            let name = &after[step.pod].name;
            let before = steps.iter().find(|before| &pods[before.pod].name == name);
            let is_repeated = before.is_some_and(|before| PodStep { pod: step.pod, ..before.clone() } == step);
            prop_assert!(!is_repeated, "{step:?}");
        }
    }
}
