//! Pods for tests: an API server that applies patches, a kubelet that runs containers, and random JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::apply::Patches;
use super::new_pod::{NewPod, new_pod};
use super::owner::Owner;
use crate::pod::Pod;

pub(super) fn set() -> Owner {
    Owner { namespace: "test".to_owned(), name: "web".to_owned(), uid: "set-uid".to_owned() }
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// Returns the pod of a template, on a node.
pub(super) fn pod_of(template: &Value, revision: &str) -> Value {
    let set = set();
    let new = NewPod {
        set: &set,
        template,
        revision,
        id: "abcde",
        claim_templates: &[],
        readiness_gates: &[],
        now: at(0),
    };
    let mut pod = new_pod(&new).unwrap();
    pod["metadata"]["uid"] = json!("u");
    pod["metadata"]["resourceVersion"] = json!("1");
    pod["spec"]["nodeName"] = json!("node");
    pod
}

pub(super) fn typed(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// Applies the patches as an API server does.
pub(super) fn write(pod: &mut Value, patches: &Patches) {
    if let Some(resize) = &patches.resize {
        strategic(pod, resize);
    }
    strategic(pod, &patches.pod.to_json());
}

/// Applies a strategic merge patch.
fn strategic(pod: &mut Value, patch: &Value) {
    for (key, value) in patch["metadata"].as_object().unwrap() {
        let stored = &mut pod["metadata"][key.strip_prefix("$deleteFromPrimitiveList/").unwrap_or(key)];
        match key.as_str() {
            "uid" | "resourceVersion" => assert_eq!(stored, value, "precondition"),
            "labels" | "annotations" => json_patch_merge(stored, value),
            "finalizers" => {
                let names = value.as_array().unwrap().iter().cloned();
                match stored.as_array_mut() {
                    Some(stored) => stored.extend(names),
                    None => *stored = names.collect(),
                }
            }
            "$deleteFromPrimitiveList/finalizers" => {
                stored.as_array_mut().unwrap().retain(|it| !value.as_array().unwrap().contains(it));
            }
            other => panic!("{other}"),
        }
    }
    for container in patch["spec"]["containers"].as_array().into_iter().flatten() {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        let stored = containers.iter_mut().find(|it| it["name"] == container["name"]).unwrap();
        json_patch_merge(stored, container);
    }
}

fn json_patch_merge(stored: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *stored = patch.clone();
        return;
    };
    if !stored.is_object() {
        *stored = json!({});
    }
    let stored = stored.as_object_mut().unwrap();
    for (key, value) in fields {
        match value {
            Value::Null => drop(stored.remove(key)),
            value => json_patch_merge(stored.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

/// A kubelet that runs one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Kubelet {
    started: u32,
    /// The image and the environment of each container that runs, and its status.
    running: BTreeMap<String, (String, Value, Value)>,
}

impl Kubelet {
    /// Starts containers that do not run, replaces those that have another image, and writes the status.
    pub(super) fn sync(&mut self, pod: &mut Value) {
        for container in pod["spec"]["containers"].as_array().unwrap().clone() {
            let (name, image) = (text(&container["name"]), text(&container["image"]));
            if self.running.get(&name).is_none_or(|(running, ..)| *running != image) {
                self.start(pod, &name);
            }
            if let Some((_, _, status)) = self.running.get_mut(&name) {
                status["resources"] = container["resources"].clone();
            }
        }
        self.write_status(pod);
    }

    /// Starts a container again.
    pub(super) fn restart(&mut self, pod: &mut Value, name: &str) {
        self.start(pod, name);
        self.sync(pod);
    }

    fn start(&mut self, pod: &Value, name: &str) {
        self.started += 1;
        let image = text(&container(pod, name)["image"]);
        let status = json!({
            "name": name, "ready": true, "restartCount": 0, "containerID": format!("containerd://{}", self.started),
            "image": reported_name(&image), "imageID": image_id(&image),
            "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}},
        });
        self.running.insert(name.to_owned(), (image, environment(pod, name), status));
    }

    fn write_status(&self, pod: &mut Value) {
        let statuses: Vec<_> = self.running.values().map(|(.., status)| status).collect();
        pod["status"] = json!({"containerStatuses": statuses});
    }

    /// Returns true if the container runs the image in the pod, with its resources, labels and annotations.
    pub(super) fn is_current(&self, pod: &Value, name: &str) -> bool {
        let image = text(&container(pod, name)["image"]);
        let wanted = environment(pod, name);
        let resources = &container(pod, name)["resources"];
        self.running.get(name).is_some_and(|(running, environment, status)| {
            *running == image && *environment == wanted && status["resources"] == *resources
        })
    }
}

fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    pod["spec"]["containers"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Returns the labels and annotations in the environment of the container.
fn environment(pod: &Value, name: &str) -> Value {
    let value = |variable: &Value| {
        let path = variable.pointer("/valueFrom/fieldRef/fieldPath")?.as_str()?;
        let (field, key) = path.strip_suffix("']")?.split_once("['")?;
        Some(pod["metadata"][field.strip_prefix("metadata.")?][key].clone())
    };
    container(pod, name)["env"].as_array().into_iter().flatten().filter_map(value).collect()
}

/// Images whose tags differ in the part after a dot are the same, like `app:1.a` and `app:1.b`.
fn image_id(image: &str) -> String {
    format!("sha256:{}", image.split_once('.').map_or(image, |(id, _)| id))
}

/// The runtime reports one of the names of an image.
fn reported_name(image: &str) -> String {
    format!("docker.io/library/{}", image.replace(".b", ".a"))
}

/// Returns JSON with the keys of templates.
pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "containers",
        "initContainers",
        "name",
        "image",
        "env",
        "valueFrom",
        "fieldRef",
        "labels",
        "fieldPath",
        "resources",
        "limits",
        "requests",
        "cpu",
        "memory",
        "resizePolicy",
        "readinessGates",
        "volumes",
        "annotations",
        "finalizers",
        "template",
        "a",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9.:/]{0,8}|metadata.labels\\['a'\\]|metadata.labels\\['|.{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(key, it)| (key.to_owned(), it)).collect()
            )),
        ]
    })
}

/// Returns the text of the value with its keys in the opposite order.
pub(super) fn shuffled(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(key, it): (&String, &Value)| format!("{}:{}", json!(key), shuffled(it));
            let fields: Map<String, Value> = fields.clone();
            format!("{{{}}}", fields.iter().rev().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(shuffled).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
