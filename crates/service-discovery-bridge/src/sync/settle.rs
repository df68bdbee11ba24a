//! Brings the instances of pods into their wanted state, and reads them back.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use podward_api::discovery_binding::BindingMode;
use podward_registries::{Change, Instance, RegistryError, RegistryErrorKind, ServiceKey};

use super::access::RegistryAccess;
use super::stale_lists::look_into_lists;
use super::task::{Outcome, Task, is_same};
use crate::model::{Decision, Desired, Presence, decide};

/// Calls of one registry at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// A list is read instead of single instances if this number of instances of a service is needed.
const LIST_FROM: usize = 8;
/// How often what was written is read back before it counts as late.
const READ_BACKS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(80), Duration::from_millis(300)];

/// What an address shows of a task.
type View = Result<Option<Instance>, RegistryError>;

/// Writes what has to be written for `tasks`, and reads it back, unless that has to wait. The outcomes are in the order of
/// the tasks.
pub(crate) async fn settle(access: &RegistryAccess, tasks: &[Task]) -> Vec<Outcome> {
    if !access.registry.can_read() {
        return write_blindly(access, tasks).await;
    }
    let mut outcomes: Vec<Option<Outcome>> = vec![None; tasks.len()];
    let mut errors: HashMap<usize, RegistryError> = HashMap::new();
    let mut written = HashSet::new();
    let lag = access.registry.read_lag();
    for (round, pause) in READ_BACKS.into_iter().enumerate() {
        tokio::time::sleep(pause).await;
        let open: Vec<usize> = (0..tasks.len()).filter(|index| outcomes[*index].is_none()).collect();
        let views = read(access, tasks, &open).await;
        let mut changes: Vec<(usize, Change)> = Vec::new();
        for (index, views) in open.iter().zip(views) {
            match judge(access, &tasks[*index], &views) {
                Judged::Outcome(Outcome::Shown { unreachable, drifted, .. }) => {
                    let written = written.contains(index);
                    outcomes[*index] = Some(Outcome::Shown { unreachable, drifted, written });
                }
                Judged::Outcome(outcome) => outcomes[*index] = Some(outcome),
                Judged::Write(change) => {
                    written.insert(*index);
                    changes.push((*index, change));
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
    outcomes
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
    Write(Change),
}

/// Returns the next step for a task, of which the addresses show `views`.
fn judge(access: &RegistryAccess, task: &Task, views: &[View]) -> Judged {
    let mut drifted = false;
    let mut change = None;
    let mut unreachable = Vec::new();
    let mut first_error = None;
    for (view, address) in views.iter().zip(access.addresses()) {
        let found = match view {
            Ok(found) => found.as_ref(),
            Err(error) => {
                access.note(error);
                unreachable.push(address.clone());
                first_error.get_or_insert(error);
                continue;
            }
        };
        let Task { presence, desired, mode, policy, .. } = task;
        match decide(*mode, *policy, *presence, desired, &access.capabilities, found) {
            Decision::Shown => {}
            Decision::Drifted => drifted = true,
            Decision::Write(next) => {
                change.get_or_insert(next);
            }
            Decision::Wait(why) => return Judged::Outcome(Outcome::Waits(why)),
        }
    }
    if let Some(change) = change {
        return Judged::Write(change);
    }
    let adds = matches!(task.presence, Presence::InService | Presence::Unchanged);
    match first_error {
        Some(error) if !adds || unreachable.len() == views.len() => {
            Judged::Outcome(Outcome::Failed(error.to_string()))
        }
        _ => Judged::Outcome(Outcome::Shown { unreachable, drifted, written: false }),
    }
}

/// Reads the instances of the tasks `open` at each address. The views of a task are in the order of the addresses.
async fn read(access: &RegistryAccess, tasks: &[Task], open: &[usize]) -> Vec<Vec<View>> {
    let mut by_service: HashMap<&ServiceKey, Vec<usize>> = HashMap::new();
    for (place, index) in open.iter().enumerate() {
        by_service.entry(&tasks[*index].desired.service).or_default().push(place);
    }
    let lists = access.capabilities.list_lag.is_zero();
    let by_id = tasks.first().is_some_and(|task| task.mode == BindingMode::Own);
    let mut calls = Vec::new();
    for (service, places) in by_service {
        for address in 0..access.addresses().len() {
            let together = match by_id || access.capabilities.by_address {
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
        open.iter().map(|_| access.addresses().iter().map(|_| Ok(None)).collect()).collect();
    // Collected first: a stream of a closure would not be `Send` for every lifetime.
    let reads: Vec<_> = calls
        .into_iter()
        .map(|(service, address, places)| async move {
            let wanted = |place: usize| &tasks[open[place]].desired.instance;
            let found = match places.as_slice() {
                [place] => vec![find(access, address, service, wanted(*place), by_id).await],
                places if !lists => {
                    let wanted: Vec<&Instance> = places.iter().map(|place| wanted(*place)).collect();
                    match access.registry.read_many(address, service, &wanted).await {
                        Ok(found) => found.into_iter().map(Ok).collect(),
                        Err(error) => places.iter().map(|_| Err(error.clone())).collect(),
                    }
                }
                _ => {
                    let listed = access.registry.instances(address, service).await;
                    let find = |place: &usize| match &listed {
                        Ok(listed) => Ok(listed
                            .iter()
                            .find(|found| is_same(access, found, wanted(*place), by_id))
                            .cloned()),
                        Err(error) => Err(error.clone()),
                    };
                    places.iter().map(find).collect()
                }
            };
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

/// Reads the instance of a pod at one address. An instance that the application registered has an id of its own, so it is
/// found by its address in a list; its present state is then read by the id.
async fn find(
    access: &RegistryAccess,
    address: usize,
    service: &ServiceKey,
    wanted: &Instance,
    by_id: bool,
) -> View {
    let registry = &access.registry;
    if by_id || access.capabilities.by_address {
        return registry.instance(address, service, wanted).await;
    }
    let listed = registry.instances(address, service).await?;
    match listed.into_iter().find(|found| is_same(access, found, wanted, by_id)) {
        Some(found) if !access.capabilities.list_lag.is_zero() => {
            registry.instance(address, service, &found).await
        }
        found => Ok(found),
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
async fn write_blindly(access: &RegistryAccess, tasks: &[Task]) -> Vec<Outcome> {
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
        if let Some(outcome) = outcomes.get_mut(index) {
            *outcome = Outcome::Failed(error.to_string());
        }
    }
    outcomes
}
