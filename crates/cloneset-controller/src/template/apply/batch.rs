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
    /// What changes next.
    pub(super) next: InPlaceChange,
    /// The containers that have to be Ready before that.
    pub(super) required: Vec<String>,
}

impl Batch {
    /// Returns the change of the containers of the highest priority, and that of the others. A container with a lower
    /// priority changes with one that has the same label or annotation in its environment.
    pub(super) fn split(pod: &Pod, change: InPlaceChange) -> Self {
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
        Self {
            required: containers.iter().cloned().collect(),
            containers: containers.into_iter().collect(),
            now: InPlaceChange { images: images_now, env: env_now, resources: resources_now, ..change },
            next: InPlaceChange { images, env, resources, ..InPlaceChange::default() },
        }
    }

    /// Returns the batch without its resize, which is made next. It waits for nothing: a container may need it to get
    /// Ready.
    pub(super) fn put_off_resize(mut self) -> Self {
        let resources = std::mem::take(&mut self.now.resources);
        if !resources.is_empty() {
            self.next.resources.extend(resources);
            self.required.clear();
        }
        self
    }

    /// Returns the resize of `changed`, the containers of a batch whose resize was put off, with the rest of `change`.
    pub(super) fn resize(mut change: InPlaceChange, changed: &[String]) -> Self {
        let (resources, later) =
            divide(std::mem::take(&mut change.resources), &changed.iter().cloned().collect());
        Self {
            containers: Vec::new(),
            now: InPlaceChange { resources, ..InPlaceChange::default() },
            next: InPlaceChange { resources: later, ..change },
            required: changed.to_vec(),
        }
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
