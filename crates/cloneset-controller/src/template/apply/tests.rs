//! Updates of pods, step by step.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::template::completion::{Progress, progress};
use crate::template::in_place::{Change, change};
use crate::template::test_pods::{Kubelet, at, pod_of, typed, write};

/// The parts of a template that can change in place.
#[derive(Clone, Debug)]
struct Variant {
    images: [&'static str; 3],
    version: &'static str,
    config: &'static str,
    note: Option<&'static str>,
    cpu: u32,
    finalizer: bool,
}

const FIRST: Variant = Variant {
    images: ["1.a", "1.a", "1.a"],
    version: "1",
    config: "a",
    note: None,
    cpu: 1,
    finalizer: false,
};

/// The priorities of the containers, and which ones have the label and the annotation in their environment.
#[derive(Clone, Debug)]
struct Shape {
    priorities: [Option<i64>; 3],
    label: [bool; 3],
    annotation: [bool; 3],
}

const NAMES: [&str; 3] = ["app", "log", "proxy"];
const PLAIN: Shape =
    Shape { priorities: [None, Some(10), Some(10)], label: [false; 3], annotation: [false; 3] };

fn template(shape: &Shape, variant: &Variant) -> Value {
    let container = |index: usize| {
        let mut env = Vec::new();
        if let Some(priority) = shape.priorities[index] {
            env.push(json!({"name": "KRUISE_CONTAINER_PRIORITY", "value": priority.to_string()}));
        }
        let reference = |path: &str| json!({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}});
        if shape.label[index] {
            env.push(reference("metadata.labels['version']"));
        }
        if shape.annotation[index] {
            env.push(reference("metadata.annotations['config']"));
        }
        let image = format!("{}:{}", NAMES[index], variant.images[index]);
        let resources = json!({"requests": {"cpu": variant.cpu.to_string()}});
        json!({"name": NAMES[index], "image": image, "env": env, "resources": resources})
    };
    let mut metadata =
        json!({"labels": {"version": variant.version}, "annotations": {"config": variant.config}});
    if let Some(note) = variant.note {
        metadata["labels"]["note"] = json!(note);
        metadata["annotations"]["note"] = json!(note);
    }
    if variant.finalizer {
        metadata["finalizers"] = json!(["example.com/a"]);
    }
    json!({"metadata": metadata, "spec": {"containers": [container(0), container(1), container(2)]}})
}

fn changed(old: &Value, new: &Value) -> InPlaceChange {
    match change(old, new) {
        Change::Unchanged => InPlaceChange::default(),
        Change::InPlace(change) => change,
        Change::Recreate(reason) => panic!("{reason}"),
    }
}

fn state_of(pod: &Value) -> UpdateState {
    UpdateState::of(&typed(pod)).unwrap().unwrap()
}

const SECOND: Update<'_> = Update { revision: "web-2222", now: Timestamp::UNIX_EPOCH, grace_seconds: 0 };

#[test]
fn one_write_changes_everything_that_need_not_wait() {
    let old = template(&PLAIN, &FIRST);
    let new = template(
        &PLAIN,
        &Variant { images: ["2", "1.a", "1.a"], note: Some("x"), finalizer: true, cpu: 2, ..FIRST },
    );
    let mut pod = pod_of(&old, "web-1111");
    Kubelet::default().sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    let first = patches.resize.unwrap();
    let names: Vec<_> =
        first["spec"]["containers"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["log", "proxy"], "of the highest priority");
    let mut patch = patches.pod.to_json();
    let annotations = patch["metadata"]["annotations"].as_object_mut().unwrap();
    let state: Value =
        serde_json::from_str(annotations.remove(UPDATE_STATE).unwrap().as_str().unwrap()).unwrap();
    let expected = json!({"metadata": {
        "uid": "u", "resourceVersion": "1", "annotations": {"note": "x"}, "finalizers": ["example.com/a"],
        "labels": {"note": "x", "controller-revision-hash": "web-2222", "pod-template-hash": "2222"},
    }});
    assert_eq!(patch, expected);
    let expected = json!({
        "revision": "web-2222", "updateTimestamp": "1970-01-01T00:00:00Z", "lastContainerStatuses": {},
        "updateImages": true, "updateResources": true,
        "nextContainerImages": {"app": "app:2"}, "nextContainerResources": {"app": {"requests": {"cpu": "2"}}},
        "preCheckBeforeNext": {"containersRequiredReady": ["log", "proxy"]},
        "containerBatchesRecord": [{"timestamp": "1970-01-01T00:00:00Z", "containers": ["log", "proxy"]}],
    });
    assert_eq!(state, expected);
}

#[test]
fn containers_change_from_high_to_low_priority() {
    let (old, new) = (template(&PLAIN, &FIRST), template(&PLAIN, &Variant { images: ["2"; 3], ..FIRST }));
    let mut pod = pod_of(&old, "web-1111");
    let mut kubelet = Kubelet::default();
    kubelet.sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    let images = |patches: &Patches| patches.pod.images.keys().cloned().collect::<Vec<_>>();
    assert_eq!(images(&patches), ["log", "proxy"]);
    write(&mut pod, &patches);
    let last = &state_of(&pod).last_container_statuses["log"];
    assert_eq!((last.image_id.as_str(), last.image.as_deref()), ("sha256:log:1", Some("log:1.a")));
    kubelet.sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(1)).progress, Progress::NextBatch);
    let patches = next(&typed(&pod), at(1)).unwrap().unwrap();
    assert_eq!(images(&patches), ["app"]);
    write(&mut pod, &patches);
    let state = state_of(&pod);
    let batches: Vec<_> = state.container_batches_record.iter().map(|it| it.containers.join(" ")).collect();
    assert_eq!(batches, ["log proxy", "app"]);
    assert_eq!((state.pre_check_before_next.as_ref(), state.waiting().is_empty()), (None, true));
    kubelet.sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(2)).progress, Progress::Complete);
    assert_eq!(next(&typed(&pod), at(2)), Ok(None));
}

#[test]
fn a_shared_label_changes_its_containers_together() {
    let shape = Shape { label: [true, true, false], annotation: [false, false, true], ..PLAIN };
    let (old, new) =
        (template(&shape, &FIRST), template(&shape, &Variant { version: "2", config: "b", ..FIRST }));
    let mut pod = pod_of(&old, "web-1111");
    Kubelet::default().sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    assert_eq!(state_of(&pod).container_batches_record[0].containers, NAMES);

    let shape = Shape { label: [true, false, false], annotation: [false, false, true], ..PLAIN };
    let (old, new) =
        (template(&shape, &FIRST), template(&shape, &Variant { version: "2", config: "b", ..FIRST }));
    let mut pod = pod_of(&old, "web-1111");
    Kubelet::default().sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    assert_eq!(
        (&pod["metadata"]["labels"]["version"], &pod["metadata"]["annotations"]["config"]),
        (&json!("1"), &json!("b"))
    );
    let state = state_of(&pod);
    assert_eq!(
        state.next_container_ref_metadata["app"].labels["version"], "2",
        "the label waits for its container"
    );
}

#[test]
fn the_grace_period_comes_first() {
    let (old, new) = (
        template(&PLAIN, &FIRST),
        template(&PLAIN, &Variant { images: ["2", "1.a", "1.a"], note: Some("x"), ..FIRST }),
    );
    let mut pod = pod_of(&old, "web-1111");
    Kubelet::default().sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), Update { grace_seconds: 5, ..SECOND }).unwrap();
    assert_eq!(
        (patches.pod.images.len(), patches.pod.labels.len()),
        (0, 2),
        "only the labels of the revision"
    );
    write(&mut pod, &patches);
    assert_eq!(progress(&typed(&pod), at(5)).progress, Progress::Grace { until: at(6) });
    assert_eq!(next(&typed(&pod), at(5)), Ok(None));
    assert_eq!(progress(&typed(&pod), at(6)).progress, Progress::NextBatch);

    let mut other = pod.clone();
    other["metadata"]["labels"][podward_core::cloneset::keys::REVISION_HASH] = json!("web-3333");
    assert_eq!(progress(&typed(&other), at(5)).progress, Progress::NextBatch);
    let void = next(&typed(&other), at(5)).unwrap().unwrap();
    assert_eq!(void.pod.annotations, [(UPDATE_GRACE.to_owned(), None)].into());
    assert!(void.pod.images.is_empty());

    let patches = next(&typed(&pod), at(6)).unwrap().unwrap();
    write(&mut pod, &patches);
    assert_eq!(pod["spec"]["containers"][0]["image"], "app:2");
    assert_eq!(pod["metadata"]["labels"]["note"], "x");
    assert_eq!(pod["metadata"]["annotations"].get(UPDATE_GRACE), None);

    let labels_only = template(&PLAIN, &Variant { note: Some("x"), ..FIRST });
    let pod = typed(&pod_of(&old, "web-1111"));
    let patches = update(&pod, changed(&old, &labels_only), Update { grace_seconds: 5, ..SECOND }).unwrap();
    assert!(!patches.pod.annotations.contains_key(UPDATE_GRACE), "nothing is interrupted");
}

#[test]
fn a_pod_without_the_container_is_recreated() {
    let change =
        InPlaceChange { images: [("new".to_owned(), "x".to_owned())].into(), ..InPlaceChange::default() };
    let pod = typed(&pod_of(&template(&PLAIN, &FIRST), "web-1111"));
    let error = update(&pod, change.clone(), SECOND).unwrap_err();
    assert_eq!(error, "the pod has no container new, so it has to be recreated");
    update(&pod, change, Update { grace_seconds: 5, ..SECOND }).unwrap_err();
}

#[test]
fn a_pod_that_no_kubelet_knows_is_updated_at_once() {
    let (old, new) =
        (template(&PLAIN, &FIRST), template(&PLAIN, &Variant { images: ["2", "1.a", "1.a"], ..FIRST }));
    let mut pod = pod_of(&old, "web-1111");
    pod["spec"]["nodeName"] = Value::Null;
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    assert_eq!(progress(&typed(&pod), at(0)).progress, Progress::Complete);
    let mut pod = pod_of(&old, "web-1111");
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    let waits = Progress::Waits("the container app is not replaced yet".to_owned());
    assert_eq!(progress(&typed(&pod), at(0)).progress, waits, "its kubelet may start the old image");
    Kubelet::default().sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(0)).progress, Progress::Complete);
}

#[test]
fn an_image_that_comes_back_in_time_is_no_change() {
    let (old, new) =
        (template(&PLAIN, &FIRST), template(&PLAIN, &Variant { images: ["2", "1.a", "1.a"], ..FIRST }));
    let mut pod = pod_of(&old, "web-1111");
    let mut kubelet = Kubelet::default();
    kubelet.sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    let waits = Progress::Waits("the container app is not replaced yet".to_owned());
    assert_eq!(progress(&typed(&pod), at(1)).progress, waits);
    let patches =
        update(&typed(&pod), changed(&new, &old), Update { revision: "web-1111", ..SECOND }).unwrap();
    write(&mut pod, &patches);
    kubelet.sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(2)).progress, Progress::Complete, "the kubelet has seen no change");
}

#[test]
fn a_resize_that_has_not_ended_is_a_part_of_the_next_update() {
    let shape = Shape { priorities: [None; 3], ..PLAIN };
    let second = Variant { cpu: 2, ..FIRST };
    let (old, new) = (template(&shape, &FIRST), template(&shape, &second));
    let newest = template(&shape, &Variant { note: Some("x"), ..second });
    let mut pod = pod_of(&old, "web-1111");
    let mut kubelet = Kubelet::default();
    kubelet.sync(&mut pod);
    for (from, to) in [(&old, &new), (&new, &newest)] {
        let patches = update(&typed(&pod), changed(from, to), SECOND).unwrap();
        write(&mut pod, &patches);
        let found = progress(&typed(&pod), at(1)).progress;
        assert!(matches!(&found, Progress::Waits(text) if text.contains("resources")), "{found:?}");
    }
    kubelet.sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(1)).progress, Progress::Complete, "all containers were resized");
}

/// Writes the resize, as if the write after it had failed.
fn write_resize(pod: &mut Value, patches: Patches) {
    let nothing = PodPatch::of(&typed(pod));
    write(pod, &Patches { pod: nothing, ..patches });
}

#[test]
fn a_resize_without_the_write_after_it_is_waited_for() {
    let shape = Shape { priorities: [None; 3], ..PLAIN };
    let (old, new) = (template(&shape, &FIRST), template(&shape, &Variant { cpu: 2, ..FIRST }));
    let is_waited_for = |pod: &Value| {
        let found = progress(&typed(pod), at(9)).progress;
        assert!(matches!(&found, Progress::Waits(text) if text.contains("resources")), "{found:?}");
    };
    for grace_seconds in [0, 5] {
        let mut pod = pod_of(&old, "web-1111");
        let mut kubelet = Kubelet::default();
        kubelet.sync(&mut pod);
        let second = Update { grace_seconds, ..SECOND };
        let patches = update(&typed(&pod), changed(&old, &new), second).unwrap();
        if grace_seconds > 0 {
            write(&mut pod, &patches);
            let patches = next(&typed(&pod), at(9)).unwrap().unwrap();
            write_resize(&mut pod, patches);
            let patches = next(&typed(&pod), at(9)).unwrap().unwrap();
            write(&mut pod, &patches);
        } else {
            write_resize(&mut pod, patches);
            let patches = update(&typed(&pod), changed(&old, &new), second).unwrap();
            write(&mut pod, &patches);
        }
        is_waited_for(&pod);
        kubelet.sync(&mut pod);
        assert_eq!(progress(&typed(&pod), at(9)).progress, Progress::Complete);
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let priority = prop::option::of(prop::sample::select(vec![-1_i64, 0, 5]));
    (prop::array::uniform3(priority), any::<[bool; 3]>(), any::<[bool; 3]>())
        .prop_map(|(priorities, label, annotation)| Shape { priorities, label, annotation })
}

fn variants() -> impl Strategy<Value = Variant> {
    let image = prop::sample::select(vec!["1.a", "1.b", "2", "3"]);
    let (version, config) = (prop::sample::select(vec!["1", "2"]), prop::sample::select(vec!["a", "b"]));
    let note = prop::option::of(prop::sample::select(vec!["x", "y"]));
    (prop::array::uniform3(image), version, config, note, 1..3_u32, any::<bool>()).prop_map(
        |(images, version, config, note, cpu, finalizer)| Variant {
            images,
            version,
            config,
            note,
            cpu,
            finalizer,
        },
    )
}

/// A template, its grace period, and what happens before the next one: the number of steps of the controller, and
/// whether the kubelet works.
fn updates() -> impl Strategy<Value = Vec<(Variant, u32, usize, bool)>> {
    prop::collection::vec((variants(), prop::sample::select(vec![0, 0, 3]), 0..4_usize, any::<bool>()), 1..5)
}

/// Brings the update one step forward. Returns true if it has ended.
fn step(pod: &mut Value, kubelet: &mut Kubelet, works: bool, now: &mut i64) -> bool {
    if works {
        kubelet.sync(pod);
    }
    *now += 1;
    match progress(&typed(pod), at(*now)).progress {
        Progress::Complete => return true,
        Progress::Grace { until } => *now = until.as_second(),
        Progress::NextBatch => {
            let patches = next(&typed(pod), at(*now)).unwrap().unwrap();
            write(pod, &patches);
        }
        Progress::Waits(reason) | Progress::Blocked(reason) => {
            // Whoever restarts containers for a new environment.
            let is_asked = works && reason.contains("has to be stopped");
            if let Some(name) = NAMES.iter().find(|name| is_asked && reason.contains(*name)) {
                kubelet.restart(pod, name);
            }
        }
    }
    false
}

proptest! {
    #[test]
    fn a_pod_that_was_changed_equals_a_new_one(shape in shapes(), updates in updates()) {
        let mut stored = template(&shape, &FIRST);
        let (mut pod, mut kubelet, mut now) = (pod_of(&stored, "web-0"), Kubelet::default(), 0);
        kubelet.sync(&mut pod);
        let count = updates.len();
        for (index, (variant, grace_seconds, steps, works)) in updates.into_iter().enumerate() {
            let new = template(&shape, &variant);
            let revision = format!("web-{}", index + 1);
            let update = Update { revision: &revision, now: at(now), grace_seconds };
            let patches = super::update(&typed(&pod), changed(&stored, &new), update).unwrap();
            write(&mut pod, &patches);
            stored = new;
            let is_last = index + 1 == count;
            let mut ended = false;
            for _ in 0..if is_last { 40 } else { steps } {
                ended = step(&mut pod, &mut kubelet, is_last || works, &mut now);
                if ended {
                    break;
                }
            }
            if ended {
                for name in NAMES {
                    prop_assert!(kubelet.is_current(&pod, name), "{name} {pod:#}");
                }
            }
            prop_assert!(ended || !is_last, "{pod:#}");
        }
        let mut expected = pod_of(&stored, &format!("web-{count}"));
        for key in [UPDATE_STATE, podward_core::cloneset::keys::STATE_TIME] {
            pod["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
            expected["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
        }
        pod.as_object_mut().unwrap().remove("status");
        if pod["metadata"]["finalizers"] == json!([]) {
            pod["metadata"].as_object_mut().unwrap().remove("finalizers");
        }
        prop_assert_eq!(pod, expected);
    }

    #[test]
    fn no_annotation_panics(
        state in ".{0,40}",
        grace in ".{0,40}",
        images in prop::collection::btree_map("[a-c]", ".{0,5}", 0..3),
    ) {
        let pod = serde_json::from_value(json!({
            "metadata": {"annotations": {UPDATE_STATE: state, UPDATE_GRACE: grace}},
            "spec": {"containers": [{"name": "a"}, {"name": "b", "image": "b"}]},
        })).unwrap();
        let change = InPlaceChange { images, ..InPlaceChange::default() };
        let _ = update(&pod, change, SECOND);
        let _ = next(&pod, at(0));
        let _ = progress(&pod, at(0));
    }
}
