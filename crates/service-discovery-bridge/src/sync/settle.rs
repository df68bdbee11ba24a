//! Brings the instances of pods into their wanted state, and reads them back.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use podward_api::discovery_binding::BindingMode;
use podward_registries::{
    Change, Instance, Listed, RegistryError, RegistryErrorKind, ServiceKey, Unreadable,
};
use tokio::time::Instant;

use super::access::RegistryAccess;
use super::stale_lists::look_into_lists;
use super::task::{Outcome, Task, is_same};
use crate::model::{Decision, Desired, Presence, decide_all};

/// Calls of one registry at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// A list is read instead of single instances if this number of instances of a service is needed.
const LIST_FROM: usize = 8;
/// How often what was written is read back before it counts as late.
const READ_BACKS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(80), Duration::from_millis(300)];

/// A read that fails after this time is one of an address that does not answer.
const SLOW: Duration = Duration::from_secs(1);

/// What an address shows of a task: the instances of its pod. An application may have registered several.
type View = Result<Vec<Instance>, RegistryError>;

/// The addresses that have not answered, with the errors. They are not read again, because each read would take its whole time.
type Silent = Mutex<HashMap<usize, RegistryError>>;

/// Writes what has to be written for `tasks`, and reads it back, unless that has to wait. Returns the outcomes in the order of
/// the tasks, and the tasks of which an addition has no known result: it may take effect later.
pub(crate) async fn settle(access: &RegistryAccess, tasks: &[Task]) -> (Vec<Outcome>, HashSet<usize>) {
    let mut unknown = HashSet::new();
    if !access.registry.can_read() {
        let outcomes = write_blindly(access, tasks, &mut unknown).await;
        return (outcomes, unknown);
    }
    let mut outcomes: Vec<Option<Outcome>> = vec![None; tasks.len()];
    let mut errors: HashMap<usize, RegistryError> = HashMap::new();
    let mut written = HashSet::new();
    let (lag, silent) = (access.registry.read_lag(), Silent::default());
    for (round, pause) in READ_BACKS.into_iter().enumerate() {
        tokio::time::sleep(pause).await;
        let open: Vec<usize> = (0..tasks.len()).filter(|index| outcomes[*index].is_none()).collect();
        let views = read(access, tasks, &open, &silent).await;
        let mut changes: Vec<(usize, Change)> = Vec::new();
        for (index, views) in open.iter().zip(views) {
            match judge(access, &tasks[*index], &views) {
                Judged::Outcome(Outcome::Shown { unreachable, drifted, .. }) => {
                    let written = written.contains(index);
                    outcomes[*index] = Some(Outcome::Shown { unreachable, drifted, written });
                }
                Judged::Outcome(outcome) => outcomes[*index] = Some(outcome),
                Judged::Write(of_task) => {
                    written.insert(*index);
                    changes.extend(of_task.into_iter().map(|change| (*index, change)));
                }
            }
        }
        if changes.is_empty() {
            break;
        }
        // The last round only reads: there would be nobody to read back what it writes.
        if round + 1 == READ_BACKS.len() {
            break;
        }
        for (index, error) in write(access, changes).await {
            access.note(&error);
            note_unknown(&mut unknown, tasks, index, &error);
            match error.kind {
                // The next round reads what is there.
                RegistryErrorKind::Conflict | RegistryErrorKind::Unknown => {
                    errors.insert(index, error);
                }
                _ => outcomes[index] = Some(Outcome::Failed(error.to_string())),
            }
        }
        if !lag.is_zero() {
            break;
        }
    }
    let unread = |index: usize| {
        let late = late(&tasks[index], errors.get(&index));
        if lag.is_zero() { Outcome::Failed(late) } else { Outcome::Written(lag, late) }
    };
    let mut outcomes: Vec<Outcome> = outcomes
        .into_iter()
        .enumerate()
        .map(|(index, outcome)| outcome.unwrap_or_else(|| unread(index)))
        .collect();
    look_into_lists(access, tasks, &mut outcomes).await;
    (outcomes, unknown)
}

/// Notes the task `index` if `error` leaves unknown whether its addition takes effect.
fn note_unknown(unknown: &mut HashSet<usize>, tasks: &[Task], index: usize, error: &RegistryError) {
    if error.kind == RegistryErrorKind::Unknown && tasks[index].presence.adds() {
        unknown.insert(index);
    }
}

/// Returns a text for a task whose change is not shown.
fn late(task: &Task, error: Option<&RegistryError>) -> String {
    let Desired { service, instance, .. } = &task.desired;
    let why = error.map(|error| format!("; the last error was: {error}")).unwrap_or_default();
    format!(
        "the change of {}:{} of service {} is not shown by every address yet{why}",
        instance.host, instance.port, service.name
    )
}

enum Judged {
    Outcome(Outcome),
    Write(Vec<Change>),
}

/// Returns the next step for a task, of which the addresses show `views`.
fn judge(access: &RegistryAccess, task: &Task, views: &[View]) -> Judged {
    let mut drifted = false;
    let mut changes: Vec<Change> = Vec::new();
    let mut unreachable = Vec::new();
    let mut first_error = None;
    for (view, address) in views.iter().zip(access.addresses()) {
        let found = match view {
            Ok(found) => found,
            Err(error) => {
                access.note(error);
                unreachable.push(address.clone());
                first_error.get_or_insert(error);
                continue;
            }
        };
        let Task { presence, desired, mode, policy, .. } = task;
        for decision in decide_all(*mode, *policy, *presence, desired, &access.capabilities, found) {
            match decision {
                Decision::Shown => {}
                Decision::Drifted => drifted = true,
                // Another address shows the same instance.
                Decision::Write(next) if changes.iter().any(|change| is_about_same(change, &next)) => {}
                Decision::Write(next) => changes.push(next),
                Decision::Wait(why) => return Judged::Outcome(Outcome::Waits(why)),
            }
        }
    }
    if !changes.is_empty() {
        return Judged::Write(changes);
    }
    match first_error {
        Some(error) if !task.presence.adds() || unreachable.len() == views.len() => {
            Judged::Outcome(Outcome::Failed(error.to_string()))
        }
        _ => Judged::Outcome(Outcome::Shown { unreachable, drifted, written: false }),
    }
}

/// Returns whether two changes of a task are about one instance. All others of its pod have another id.
fn is_about_same(one: &Change, other: &Change) -> bool {
    one.target().1.id == other.target().1.id
}

/// Reads the instances of the tasks `open` at each address. The views of a task are in the order of the addresses.
async fn read(access: &RegistryAccess, tasks: &[Task], open: &[usize], silent: &Silent) -> Vec<Vec<View>> {
    let mut by_service: HashMap<&ServiceKey, Vec<usize>> = HashMap::new();
    for (place, index) in open.iter().enumerate() {
        by_service.entry(&tasks[*index].desired.service).or_default().push(place);
    }
    let lists = access.capabilities.list_lag.is_zero();
    let by_id = tasks.first().is_some_and(|task| access.finds_single(task.mode));
    let mut calls = Vec::new();
    for (service, places) in by_service {
        for address in 0..access.addresses().len() {
            let together = match by_id {
                true => places.len() >= LIST_FROM && (lists || access.registry.reads_many()),
                // An instance is only found in a list.
                false => lists,
            };
            match together {
                true => calls.push((service, address, places.clone())),
                false => calls.extend(places.iter().map(|place| (service, address, vec![*place]))),
            }
        }
    }
    let mut views: Vec<Vec<View>> =
        open.iter().map(|_| access.addresses().iter().map(|_| Ok(Vec::new())).collect()).collect();
    // Collected first: a stream of a closure would not be `Send` for every lifetime.
    let reads: Vec<_> = calls
        .into_iter()
        .map(|(service, address, places)| async move {
            let known = silent.lock().get(&address).cloned();
            if let Some(error) = known {
                let views = places.iter().map(|_| Err(error.clone())).collect();
                return (address, places, views);
            }
            let begin = Instant::now();
            let wanted = |place: usize| &tasks[open[place]].desired.instance;
            let found: Vec<View> = match places.as_slice() {
                [place] => vec![find(access, address, &tasks[open[*place]]).await],
                places if !lists => {
                    let wanted: Vec<&Instance> = places.iter().map(|place| wanted(*place)).collect();
                    match access.registry.read_many(address, service, &wanted).await {
                        Ok(found) => found.into_iter().map(|found| Ok(found.into_iter().collect())).collect(),
                        Err(error) => places.iter().map(|_| Err(error.clone())).collect(),
                    }
                }
                _ => {
                    let listed = access.registry.listed(address, service).await;
                    match listed {
                        Ok(listed) => {
                            let of = |place: &usize| of_task(access, &listed, &tasks[open[*place]]);
                            places.iter().map(of).collect()
                        }
                        Err(error) => places.iter().map(|_| Err(error.clone())).collect(),
                    }
                }
            };
            let failed =
                found.iter().find_map(|view| view.as_ref().err().filter(|error| is_no_answer(error)));
            if let Some(error) = failed.filter(|_| begin.elapsed() >= SLOW) {
                silent.lock().insert(address, error.clone());
            }
            (address, places, found)
        })
        .collect();
    let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_CALLS);
    while let Some((address, places, found)) = reads.next().await {
        for (place, view) in places.into_iter().zip(found) {
            if let Some(slot) = views.get_mut(place).and_then(|views| views.get_mut(address)) {
                *slot = view;
            }
        }
    }
    views
}

/// Returns whether an error may be that of an address that does not answer.
fn is_no_answer(error: &RegistryError) -> bool {
    matches!(error.kind, RegistryErrorKind::Unavailable | RegistryErrorKind::Unknown)
}

/// Reads the instances of a task's pod at one address. One that the application registered has an id of its own, so it is
/// found by its address in a list; its present state is then read by the id.
async fn find(access: &RegistryAccess, address: usize, task: &Task) -> View {
    let registry = &access.registry;
    let Desired { service, instance, .. } = &task.desired;
    if access.finds_single(task.mode) {
        return Ok(registry.instance(address, service, instance).await?.into_iter().collect());
    }
    let listed = of_task(access, &registry.listed(address, service).await?, task)?;
    if access.capabilities.list_lag.is_zero() {
        return Ok(listed);
    }
    let mut present = Vec::new();
    for found in &listed {
        present.extend(registry.instance(address, service, found).await?);
    }
    Ok(present)
}

/// Returns the instances of a task's pod in a list.
///
/// # Errors
/// Fails if an entry that cannot be read may be one of them. An application is in service by one of its entries, whatever a
/// further one is.
fn of_task(access: &RegistryAccess, listed: &Listed, task: &Task) -> View {
    let wanted = &task.desired.instance;
    let by_id = task.mode == BindingMode::Own;
    let found = listed.instances.iter().filter(|found| is_same(access, found, wanted, by_id));
    let found: Vec<Instance> = found.cloned().collect();
    let is_served = !by_id && task.presence.adds() && !found.is_empty();
    let may_be = |entry: &&Unreadable| match by_id && !access.capabilities.by_address {
        true => entry.id == wanted.id,
        false => entry.may_be_at(&wanted.host, wanted.port),
    };
    match listed.unreadable.iter().find(may_be) {
        Some(entry) if !is_served => Err(entry.error.clone()),
        _ => Ok(found),
    }
}

/// Writes changes, and returns the errors.
async fn write(access: &RegistryAccess, changes: Vec<(usize, Change)>) -> Vec<(usize, RegistryError)> {
    let (indices, changes): (Vec<usize>, Vec<Change>) = changes.into_iter().unzip();
    let batch = access.capabilities.batch.max(1);
    let writes: Vec<_> = changes
        .chunks(batch)
        .zip(indices.chunks(batch))
        .map(|(changes, indices)| async move {
            let results = access.registry.write(changes).await;
            let failed =
                indices.iter().zip(results).filter_map(|(index, result)| Some((*index, result.err()?)));
            failed.collect::<Vec<_>>()
        })
        .collect();
    let failed: Vec<Vec<_>> = stream::iter(writes).buffer_unordered(MAX_CONCURRENT_CALLS).collect().await;
    failed.into_iter().flatten().collect()
}

/// Writes the wanted states to a registry that cannot be read.
async fn write_blindly(
    access: &RegistryAccess,
    tasks: &[Task],
    unknown: &mut HashSet<usize>,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = tasks
        .iter()
        .map(|_| Outcome::Shown { unreachable: Vec::new(), drifted: false, written: true })
        .collect();
    let changes = tasks.iter().enumerate().filter_map(|(index, Task { presence, desired, .. })| {
        let (service, instance) = (desired.service.clone(), desired.instance.clone());
        let change = match presence {
            Presence::Unchanged => return None,
            Presence::InService => Change::Register(service, instance),
            Presence::OutOfService => {
                Change::SetInService(service, Instance { in_service: false, ..instance })
            }
            Presence::Absent | Presence::Released => Change::Deregister(service, instance),
        };
        Some((index, change))
    });
    for (index, error) in write(access, changes.collect()).await {
        access.note(&error);
        note_unknown(unknown, tasks, index, &error);
        if let Some(outcome) = outcomes.get_mut(index) {
            *outcome = Outcome::Failed(error.to_string());
        }
    }
    outcomes
}
