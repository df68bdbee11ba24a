//! The containers that change together.

use std::collections::{BTreeMap, BTreeSet};

use crate::pod::Pod;
use crate::template::in_place_change::{EnvMetadata, InPlaceChange};

/// A change in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// The containers that change now.
    pub(super) containers: Vec<String>,
    /// What changes now.
    pub(super) now: InPlaceChange,
    /// What changes when the containers are Ready.
    pub(super) next: InPlaceChange,
}

/// Returns the change of the containers of the highest priority, and that of the others. A container with a lower
/// priority changes with one that has the same label or annotation in its environment.
pub(super) fn split(pod: &Pod, change: InPlaceChange) -> Batch {
    let priorities: BTreeMap<&str, i64> = change
        .containers()
        .into_iter()
        .map(|name| (name, pod.container(name).map_or(0, |container| container.priority)))
        .collect();
    let highest = priorities.values().max().copied().unwrap_or_default();
    let first = priorities.iter().filter(|(_, it)| **it == highest).map(|(name, _)| (*name).to_owned());
    let mut containers: BTreeSet<String> = first.collect();
    add_sharing(&mut containers, &change.env);
    let (images_now, images) = divide(change.images, &containers);
    let (env_now, env) = divide(change.env, &containers);
    let (resources_now, resources) = divide(change.resources, &containers);
    Batch {
        containers: containers.into_iter().collect(),
        now: InPlaceChange { images: images_now, env: env_now, resources: resources_now, ..change },
        next: InPlaceChange { images, env, resources, ..InPlaceChange::default() },
    }
}

fn divide<T>(
    map: BTreeMap<String, T>,
    first: &BTreeSet<String>,
) -> (BTreeMap<String, T>, BTreeMap<String, T>) {
    map.into_iter().partition(|(name, _)| first.contains(name))
}

fn add_sharing(containers: &mut BTreeSet<String>, env: &BTreeMap<String, EnvMetadata>) {
    loop {
        let written: Vec<&EnvMetadata> = containers.iter().filter_map(|name| env.get(name)).collect();
        let shares = |metadata: &EnvMetadata| {
            written.iter().any(|it| {
                metadata.labels.keys().any(|key| it.labels.contains_key(key))
                    || metadata.annotations.keys().any(|key| it.annotations.contains_key(key))
            })
        };
        let others = env.iter().filter(|(name, metadata)| !containers.contains(*name) && shares(metadata));
        let others: Vec<String> = others.map(|(name, _)| name.clone()).collect();
        if others.is_empty() {
            return;
        }
        containers.extend(others);
    }
}
