//! What can happen.

use proptest::prelude::*;

use super::{PODS, RULES};

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Begin(usize),
    Cancel(usize),
    Finish(usize),
    Crash(usize),
    Recover(usize),
    Replace(usize),
    /// Somebody besides rules refuses, or doesn't any more.
    Object(usize),
    Edit(usize, u32),
    Remove(usize),
    Follow(usize, usize),
    ReadRule(usize, usize),
    ReadPods(usize),
    NewTerm(usize),
    Hear(usize),
    Look(usize, usize),
    Decide(usize),
    /// Reads the rules, decides, and looks at all pods.
    Round(usize),
    Land(usize),
    Lose(usize),
}

pub(crate) fn act() -> impl Strategy<Value = Act> {
    let (pod, rule, leader) = (0..PODS, 0..RULES, 0..2usize);
    prop_oneof![
        6 => pod.clone().prop_map(Act::Begin),
        2 => pod.clone().prop_map(Act::Cancel),
        3 => pod.clone().prop_map(Act::Finish),
        1 => pod.clone().prop_map(Act::Crash),
        2 => pod.clone().prop_map(Act::Recover),
        1 => pod.clone().prop_map(Act::Replace),
        1 => pod.clone().prop_map(Act::Object),
        1 => (rule.clone(), 1..4u32).prop_map(|(rule, most)| Act::Edit(rule, most)),
        1 => rule.clone().prop_map(Act::Remove),
        6 => (leader.clone(), 0..8usize).prop_map(|(leader, events)| Act::Follow(leader, events)),
        6 => (leader.clone(), rule).prop_map(|(leader, rule)| Act::ReadRule(leader, rule)),
        3 => leader.clone().prop_map(Act::ReadPods),
        1 => leader.clone().prop_map(Act::NewTerm),
        2 => leader.clone().prop_map(Act::Hear),
        10 => (leader.clone(), pod).prop_map(|(leader, pod)| Act::Look(leader, pod)),
        5 => leader.clone().prop_map(Act::Decide),
        8 => leader.prop_map(Act::Round),
        24 => (0..8usize).prop_map(Act::Land),
        1 => (0..8usize).prop_map(Act::Lose),
    ]
}
