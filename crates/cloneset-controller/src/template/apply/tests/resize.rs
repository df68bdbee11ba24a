//! Updates with new resources.

use super::*;

/// Writes the resize, as if the write after it had failed.
fn write_resize(pod: &mut Value, patches: Patches) {
    let nothing = PodPatch::of(&typed(pod));
    write(pod, &Patches { pod: nothing, ..patches });
}

/// The pod has its revision before its resources, so that the revision before it takes them back.
#[test]
fn a_resize_follows_the_write_that_has_the_revision() {
    let shape = Shape { priorities: [None; 3], ..PLAIN };
    let second = Variant { images: ["2", "1.a", "1.a"], cpu: 2, ..FIRST };
    let (old, new) = (template(&shape, &FIRST), template(&shape, &second));
    let mut pod = pod_of(&old, "web-1111");
    let mut kubelet = Kubelet::default();
    kubelet.sync(&mut pod);
    // The kubelet has put another resize off.
    pod["status"]["conditions"] =
        json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    assert_eq!(patches.resize, None);
    write(&mut pod, &patches);
    let state = state_of(&pod);
    assert_eq!(state.next_container_resources.keys().collect::<Vec<_>>(), NAMES.iter().collect::<Vec<_>>());
    assert_eq!(progress(&typed(&pod), at(1)).progress, Progress::NextBatch, "the resize waits for nothing");
    let mut resized = pod.clone();
    write_resize(&mut resized, next(&typed(&pod), at(1)).unwrap().unwrap());
    // The write after it is refused, and the template is reverted.
    let patches =
        update(&typed(&resized), changed(&new, &old), Update { revision: "web-1111", ..SECOND }).unwrap();
    write(&mut resized, &patches);
    let patches = next(&typed(&resized), at(2)).unwrap().unwrap();
    write(&mut resized, &patches);
    assert_eq!(resized["spec"], pod_of(&old, "web-1111")["spec"]);

    let patches = next(&typed(&pod), at(1)).unwrap().unwrap();
    write(&mut pod, &patches);
    assert_eq!(pod["spec"], pod_of(&new, "web-2222")["spec"]);
    kubelet.sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(2)).progress, Progress::Complete);
    assert!(state_of(&pod).waiting().is_empty());
}

/// A container without new resources is Ready before containers of lower priority change.
#[test]
fn containers_wait_for_all_of_the_higher_priority_after_a_resize() {
    let old = template(&PLAIN, &FIRST);
    let mut new = template(&PLAIN, &Variant { images: ["2", "2", "1.a"], ..FIRST });
    new["spec"]["containers"][2]["resources"] = json!({"requests": {"cpu": "2"}});
    let mut pod = pod_of(&old, "web-1111");
    let mut kubelet = Kubelet::default();
    kubelet.sync(&mut pod);
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    let patches = next(&typed(&pod), at(1)).unwrap().unwrap();
    assert_eq!(patches.resize.as_ref().unwrap()["spec"]["containers"][0]["name"], "proxy");
    assert!(patches.pod.images.is_empty());
    write(&mut pod, &patches);
    let required = state_of(&pod).pre_check_before_next.unwrap().containers_required_ready;
    assert_eq!(required, ["log", "proxy"]);
    kubelet.sync(&mut pod);
    let patches = next(&typed(&pod), at(2)).unwrap().unwrap();
    assert_eq!(patches.pod.images.keys().collect::<Vec<_>>(), ["app"]);
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
        if let Some(patches) = next(&typed(&pod), at(1)).unwrap() {
            write(&mut pod, &patches);
        }
        let found = progress(&typed(&pod), at(1)).progress;
        assert!(matches!(&found, Progress::Waits(text) if text.contains("resources")), "{found:?}");
    }
    kubelet.sync(&mut pod);
    assert_eq!(progress(&typed(&pod), at(1)).progress, Progress::Complete, "all containers were resized");
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
        write(&mut pod, &patches);
        let patches = next(&typed(&pod), at(9)).unwrap().unwrap();
        write_resize(&mut pod, patches);
        let patches = next(&typed(&pod), at(9)).unwrap().unwrap();
        assert_eq!(patches.resize, None);
        write(&mut pod, &patches);
        is_waited_for(&pod);
        kubelet.sync(&mut pod);
        assert_eq!(progress(&typed(&pod), at(9)).progress, Progress::Complete);
    }
    // Another writer has resized the pod before.
    let mut pod = pod_of(&old, "web-1111");
    Kubelet::default().sync(&mut pod);
    pod["spec"] = pod_of(&new, "web-1111")["spec"].clone();
    let patches = update(&typed(&pod), changed(&old, &new), SECOND).unwrap();
    write(&mut pod, &patches);
    is_waited_for(&pod);
}
