//! Random steps, and how often each kind happens.

use super::hooks::Say;
use super::steps::{IDS, Step, TYPES};

/// Returns random steps. Among them are some that usually follow each other, so that schedules also reach states that
/// are far from the first one.
pub(crate) fn random_steps(random: &mut fastrand::Rng) -> Vec<Step> {
    let length = random.usize(8..50);
    let mut steps = Vec::new();
    while steps.len() < length {
        if random.u8(0..10) > 0 {
            steps.push(random_step(random));
            continue;
        }
        for step in usual_steps(random) {
            if random.u8(0..4) == 0 {
                steps.push(random_step(random));
            }
            steps.push(step);
        }
    }
    steps
}

fn usual_steps(random: &mut fastrand::Rng) -> Vec<Step> {
    let (pod, replica, all) = (random_pod(random), 0, usize::MAX);
    let (evicts, names_uid) = (random.bool(), random.bool());
    let [follow, reconcile] = [Step::Follow { replica, events: all }, Step::Reconcile { replica, pod }];
    let follow_traffic = Step::FollowTraffic { events: all };
    match random.u8(0..3) {
        0 => vec![follow, reconcile, Step::Kubelet { pod }, follow, reconcile, follow_traffic],
        1 => {
            let record = Step::Record { record: 0 };
            vec![Step::Call { pod, evicts, names_uid }, record, record, follow, reconcile]
        }
        _ => vec![
            Step::Begin { pod, id: random.usize(0..IDS.len()), of_type: random.usize(0..TYPES.len()) },
            follow,
            reconcile,
            follow_traffic,
            Step::Traffic { pod, names_version: true },
        ],
    }
}

fn random_pod(random: &mut fastrand::Rng) -> usize {
    usize::from(random.u8(0..3) == 0)
}

fn random_step(random: &mut fastrand::Rng) -> Step {
    // Most of the time, the first replica leads.
    let replica = usize::from(random.u8(0..4) == 0);
    let pod = random_pod(random);
    let (id, number) = (random.usize(0..IDS.len()), random.usize(0..8));
    let few = random.usize(1..5);
    let say = match random.u8(0..8) {
        0 => Say::No,
        1 => Say::Pending,
        _ => Say::Done,
    };
    match random.u8(0..136) {
        0..12 => Step::Follow { replica, events: if random.bool() { usize::MAX } else { few } },
        12..14 => Step::Lose { replica, events: few },
        14..16 => Step::List { replica, age: random.usize(0..6) },
        16..19 => Step::Restart { replica, age: random.usize(0..8).saturating_sub(2) },
        19..22 => Step::Lead { replica: random.usize(0..2), leads: random.bool() },
        22..40 => Step::Reconcile { replica, pod },
        40..46 => Step::Decide { replica, pod },
        46..50 => Step::Land { replica, request: number },
        50..53 => Step::LandUnheard { replica, request: number },
        53..54 => Step::LoseRequest { replica, request: number },
        54..64 => Step::Work { call: number, say },
        64..70 => Step::Hear { reply: number },
        70..71 => Step::LoseReply { reply: number },
        71..76 => Step::Begin { pod, id, of_type: random.usize(0..TYPES.len()) },
        76..79 => Step::Finish { pod, id, both: random.bool() },
        79..81 => Step::Undo { pod, id },
        81..86 => Step::Call { pod, evicts: random.bool(), names_uid: random.bool() },
        86..88 => Step::Repeat { caller: number },
        88..94 => Step::Record { record: number },
        94..95 => Step::LabelForDeletion { pod },
        95..96 => Step::CancelDeletion { pod },
        96..97 => match random.u8(0..4) {
            0 => Step::BreakGlass { pod },
            1 => Step::End { pod },
            _ => Step::Node { is_ready: random.bool() },
        },
        97..98 => Step::Create { pod, is_copy: random.bool() },
        98..103 => Step::Replace { pod, is_copy: random.bool() },
        103..111 => Step::Kubelet { pod },
        111..112 => Step::Containers { pod, are_ready: random.u8(0..3) > 0 },
        112..114 => Step::FollowTraffic { events: if random.bool() { usize::MAX } else { few } },
        114..118 => Step::Traffic { pod, names_version: random.u8(0..3) > 0 },
        118..119 => Step::Webhook { replica: random.usize(0..2), is_up: random.bool() },
        119..121 => Step::Checks { pre: random.bool(), post: random.bool(), refuses: random.bool() },
        121..125 => Step::Room { is_there: random.u8(0..3) == 0 },
        125..127 => Step::Forge { pod, id },
        127..129 => Step::StayOffline { pod, stays: random.bool() },
        _ => Step::Sleep { seconds: random.i64(1..70) },
    }
}
