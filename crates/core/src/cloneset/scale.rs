//! Which pods are created and deleted.

use super::draft::{Draft, length};
use super::hook::holds;
use super::need::{missing, missing_updates};
use super::pod::SetPod;
use super::removal::remove;
use super::state::State;
use super::step::{PodStep, Previous};

/// Plans creations, deletions, and deletions that are cancelled.
pub(super) fn plan(draft: &mut Draft<'_>) {
    let (set, pods) = (draft.set, draft.pods);
    let is_specified = |pod: &SetPod| {
        pod.specified_delete || pod.deletion_requested || set.pods_to_delete.contains(&pod.name)
    };
    let (mut specified, mut begun, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (index, pod) in pods.iter().enumerate() {
        match (is_specified(pod), pod.is_preparing_delete()) {
            (true, _) => specified.push(index),
            (false, true) => begun.push(index),
            (false, false) => others.push(index),
        }
    }
    let counts = |pod: &SetPod| !(set.exclude_preparing_delete && pod.is_preparing_delete());
    let counted = length(pods.iter().filter(|pod| counts(pod)).count());
    let replaced =
        length(specified.iter().filter_map(|index| pods.get(*index)).filter(|pod| counts(pod)).count());
    let target = i64::from(set.replicas) + surge(draft, counted, replaced);
    let excess = (counted - target - replaced).max(0);

    // Those that their hook has released come first: the others can still be kept.
    begun.sort_by_cached_key(|index| {
        pods.get(*index).map(|pod| {
            (holds(set.hooks().pre_delete.as_ref(), pod, State::PreparingDelete), pod.deletion_order())
        })
    });
    let kept = match set.exclude_preparing_delete {
        // They do not count, so they are only needed if pods are missing.
        true => length(begun.len()) - (target - counted).clamp(0, length(begun.len())),
        false => excess.min(length(begun.len())),
    };
    let cancelled = begun.split_off(usize::try_from(kept).unwrap_or(begun.len()).min(begun.len()));
    let chosen = match set.exclude_preparing_delete {
        true => excess,
        false => excess - kept,
    };
    // In an update, surge pods that are not available yet would be deleted and created again.
    let is_scale_in = counted - replaced > i64::from(set.replicas) + i64::from(set.max_surge());
    let chosen = choose(draft, others, chosen, is_scale_in);
    for index in specified.into_iter().chain(begun).chain(chosen) {
        draft.leave(index);
    }
    for index in &cancelled {
        cancel(draft, *index);
    }
    let returned = if set.exclude_preparing_delete { length(cancelled.len()) } else { 0 };
    create(draft, target - counted - returned);
    delete(draft);
}

/// Returns the number of pods above `replicas` that there may be now.
fn surge(draft: &Draft<'_>, counted: i64, replaced: i64) -> i64 {
    let set = draft.set;
    let most = i64::from(set.max_surge());
    if most == 0 {
        return 0;
    }
    let begun = length(draft.pods.iter().filter(|pod| pod.is_update_begun()).count());
    let updates = match set.updates() {
        true => missing_updates(set, draft.pods),
        false => 0,
    };
    // A change in place needs no pod above `replicas` if one may be unavailable.
    let in_place = |pod: &SetPod| pod.is_updated() || (set.in_place() && pod.revision.is_in_place());
    let in_place_suffices = set.max_unavailable() > 0 && draft.pods.iter().all(in_place);
    let updates = if in_place_suffices { 0 } else { (updates + begun).max(0) };
    let replacements = (replaced - (counted - i64::from(set.replicas)).max(0)).max(0);
    most.min(updates + replacements)
}

/// Returns `count` pods to delete, in this order:
///
/// 1. those whose deletion was just sent;
/// 2. old ones of which there are too many;
/// 3. those with the revision of the template;
/// 4. in a scale-in, available ones of 2 and 3 that have to wait, because too few are available;
/// 5. the old pods of the partition.
fn choose(draft: &Draft<'_>, mut from: Vec<usize>, count: i64, is_scale_in: bool) -> Vec<usize> {
    let (set, pods) = (draft.set, draft.pods);
    let Ok(count) = usize::try_from(count) else { return Vec::new() };
    if count == 0 {
        return Vec::new();
    }
    from.sort_by_cached_key(|index| pods.get(*index).map(SetPod::deletion_order));
    let is_one = |index: &usize, is: fn(&SetPod) -> bool| pods.get(*index).is_some_and(is);
    let (sent, from): (Vec<_>, Vec<_>) =
        from.into_iter().partition(|index| is_one(index, |pod| pod.deletion_sent));
    let (updated, mut old): (Vec<_>, Vec<_>) =
        from.into_iter().partition(|index| is_one(index, counts_as_updated));
    let partition = usize::try_from(set.partition()).unwrap_or(usize::MAX);
    let kept = old.split_off(old.len().saturating_sub(partition));
    let mut budget = draft.budget();
    let (now, later): (Vec<_>, Vec<_>) = old.into_iter().chain(updated).partition(|index| {
        let is_available = is_one(index, SetPod::is_available);
        budget -= i64::from(is_available);
        !is_scale_in || !is_available || budget >= 0
    });
    sent.into_iter().chain(now).chain(later).chain(kept).take(count).collect()
}

/// Returns true if the pod has the revision of the template, or gets it next.
fn counts_as_updated(pod: &SetPod) -> bool {
    pod.is_updated() || pod.is_update_begun()
}

fn cancel(draft: &mut Draft<'_>, index: usize) {
    let Some(pod) = draft.pods.get(index) else { return };
    let pre_normal = draft.set.hooks().pre_normal.as_ref();
    let back = match pod.previous {
        // Its operator may have taken it out of use, and is asked to bring it back.
        Some(State::Normal) if pre_normal.is_some_and(|hook| !hook.confirms(pod)) => State::PreparingNormal,
        Some(state) if state != State::PreparingDelete => state,
        _ => State::PreparingNormal,
    };
    draft.step(PodStep { previous: pod.previous.map(|_| Previous::Forget), ..PodStep::to(index, back) });
}

/// Plans the creation of `missing` pods.
fn create(draft: &mut Draft<'_>, missing: i64) {
    let Ok(missing) = u32::try_from(missing) else { return };
    let allowed = match draft.set.scale_max_unavailable {
        Some(limit) => {
            let unavailable =
                draft.staying().filter(|(_, pod)| !pod.is_available() && !pod.is_preparing_delete());
            let unavailable = u32::try_from(unavailable.count()).unwrap_or(u32::MAX);
            missing.min(limit.rounded_up(draft.set.replicas).saturating_sub(unavailable))
        }
        None => missing,
    };
    draft.plan.creations_held = missing - allowed;
    // Those with the revision of the template come first: the others would have to be updated.
    draft.plan.create.update = allowed.min(creatable_updates(draft));
    draft.plan.create.current = allowed - draft.plan.create.update;
}

/// Returns how many pods may be created with the revision of the template.
pub(super) fn creatable_updates(draft: &Draft<'_>) -> u32 {
    let updated = draft.staying().filter(|(_, pod)| counts_as_updated(pod)).count();
    u32::try_from(missing(draft.set, updated)).unwrap_or(0)
}

/// Plans the next step of pods that are deleted.
fn delete(draft: &mut Draft<'_>) {
    let mut leaving: Vec<(usize, &SetPod)> =
        draft.pods.iter().enumerate().filter(|(index, _)| draft.leaving.get(*index) == Some(&true)).collect();
    leaving.sort_by_cached_key(|(_, pod)| pod.deletion_order());
    for (index, pod) in leaving {
        remove(draft, index, pod, false);
    }
}
