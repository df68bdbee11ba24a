//! What changes in a pod that keeps running.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::resources::Resources;
use crate::pod::Pod;

/// The values of labels and annotations that the environment of a container contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EnvMetadata {
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// What changes in a pod that keeps running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InPlaceChange {
    /// The new images, by the names of containers.
    pub(crate) images: BTreeMap<String, String>,
    /// The new labels and annotations that the environment of containers contains, by the names of containers. Such a
    /// container has to start again.
    pub(crate) env: BTreeMap<String, EnvMetadata>,
    /// The new resources, by the names of containers. Only those that change.
    pub(crate) resources: BTreeMap<String, Resources>,
    /// The other labels. `None`: the label is removed.
    pub(crate) labels: BTreeMap<String, Option<String>>,
    /// The other annotations. `None`: the annotation is removed.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
    /// The finalizers that are added (true) or removed (false).
    pub(crate) finalizers: BTreeMap<String, bool>,
}

impl InPlaceChange {
    /// Returns true if nothing changes.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the containers that change.
    #[must_use]
    pub(crate) fn containers(&self) -> BTreeSet<&str> {
        let names = self.images.keys().chain(self.env.keys()).chain(self.resources.keys());
        names.map(String::as_str).collect()
    }

    /// Returns the containers that have to start again and keep their image. The kubelet starts a container again only
    /// for another image: somebody else has to stop these, or the pod is recreated.
    #[must_use]
    pub(crate) fn restarts(&self) -> BTreeSet<&str> {
        self.env.keys().filter(|name| !self.images.contains_key(*name)).map(String::as_str).collect()
    }

    /// Returns this change and then `later` as one change.
    #[must_use]
    pub(super) fn then(mut self, later: Self) -> Self {
        self.images.extend(later.images);
        for (name, metadata) in later.env {
            let own = self.env.entry(name).or_default();
            own.labels.extend(metadata.labels);
            own.annotations.extend(metadata.annotations);
        }
        for (name, resources) in later.resources {
            self.resources.entry(name).or_default().extend(resources);
        }
        self.labels.extend(later.labels);
        self.annotations.extend(later.annotations);
        self.finalizers.extend(later.finalizers);
        self
    }

    /// Returns the change without what the pod already has.
    #[must_use]
    pub(super) fn without_stored(mut self, pod: &Pod) -> Self {
        let (labels, annotations) = (pod.labels(), pod.annotations());
        self.images
            .retain(|name, image| pod.container(name).is_none_or(|it| it.image.as_ref() != Some(image)));
        self.env.retain(|_, metadata| {
            metadata.labels.iter().any(|(key, value)| labels.get(key) != Some(value))
                || metadata.annotations.iter().any(|(key, value)| annotations.get(key) != Some(value))
        });
        self.resources.retain(|name, resources| {
            let stored = pod.container(name).and_then(|it| it.resources.as_ref());
            *resources = resources.without(&stored.map(Resources::of).unwrap_or_default());
            !resources.is_empty()
        });
        self.labels.retain(|key, value| labels.get(key) != value.as_ref());
        self.annotations.retain(|key, value| annotations.get(key) != value.as_ref());
        self.finalizers.retain(|name, is_added| pod.finalizers().contains(name) != *is_added);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn change(images: &[(&str, &str)]) -> InPlaceChange {
        let owned = |(name, image): &(&str, &str)| ((*name).to_owned(), (*image).to_owned());
        InPlaceChange { images: images.iter().map(owned).collect(), ..InPlaceChange::default() }
    }

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_later_change_wins() {
        let both = change(&[("app", "app:2"), ("log", "log:2")]).then(change(&[("app", "app:3")]));
        assert_eq!(both, change(&[("app", "app:3"), ("log", "log:2")]));
    }

    #[test]
    fn what_a_pod_has_is_no_change() {
        let pod = pod(json!({
            "metadata": {"labels": {"version": "1"}, "annotations": {"note": "a"}, "finalizers": ["example.com/a"]},
            "spec": {"containers": [{"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]},
        }));
        let version = |value: &str| EnvMetadata {
            labels: [("version".to_owned(), value.to_owned())].into(),
            annotations: BTreeMap::new(),
        };
        let cpu = |value: &str| Resources {
            requests: [("cpu".to_owned(), value.to_owned())].into(),
            limits: BTreeMap::new(),
        };
        let stored = InPlaceChange {
            env: [("app".to_owned(), version("1"))].into(),
            resources: [("app".to_owned(), cpu("1000m"))].into(),
            labels: [("old".to_owned(), None)].into(),
            annotations: [("note".to_owned(), Some("a".to_owned()))].into(),
            finalizers: [("example.com/a".to_owned(), true), ("example.com/b".to_owned(), false)].into(),
            ..change(&[("app", "app:1")])
        };
        assert_eq!(stored.without_stored(&pod), InPlaceChange::default());

        let new = InPlaceChange {
            env: [("app".to_owned(), version("2"))].into(),
            resources: [("app".to_owned(), cpu("2"))].into(),
            labels: [("version".to_owned(), None)].into(),
            annotations: [("note".to_owned(), None)].into(),
            finalizers: [("example.com/a".to_owned(), false), ("example.com/b".to_owned(), true)].into(),
            ..change(&[("app", "app:2"), ("other", "x")])
        };
        assert_eq!(new.clone().without_stored(&pod), new);
        assert_eq!(new.containers(), ["app", "other"].into());
        assert_eq!(new.restarts(), BTreeSet::new(), "the container has another image");
    }

    #[test]
    fn a_container_with_its_image_has_to_be_stopped_by_somebody() {
        let change = InPlaceChange {
            env: [("app".to_owned(), EnvMetadata::default()), ("log".to_owned(), EnvMetadata::default())]
                .into(),
            ..change(&[("app", "app:2")])
        };
        assert_eq!(change.restarts(), ["log"].into());
    }
}
