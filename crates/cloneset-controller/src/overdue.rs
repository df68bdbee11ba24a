//! Waits for hooks that last longer than their deadlines.

use podward_core::cloneset::{HookKind, HookWait, SetPod, SetSpec, wait};

/// Returns the hook for which the pod has waited longer than its deadline.
pub(crate) fn overdue(spec: &SetSpec, pod: &SetPod) -> Option<HookWait> {
    if pod.past_deadline { wait(spec, pod) } else { None }
}

/// Returns the number of pods that wait longer than the deadlines, and what they wait for, for people.
pub(crate) fn report<'a>(
    spec: &SetSpec,
    pods: impl IntoIterator<Item = &'a SetPod>,
) -> (usize, Option<String>) {
    let mut pods: Vec<_> =
        pods.into_iter().filter_map(|pod| Some((overdue(spec, pod)?, &*pod.name))).collect();
    pods.sort_by(|(one, a), (other, b)| (one.hook, a).cmp(&(other.hook, b)));
    let hooks = [HookKind::PreNormal, HookKind::InPlaceUpdate, HookKind::PreDelete];
    let sentences = hooks.into_iter().filter_map(|hook| {
        let mut found = pods.iter().filter(|(wait, _)| wait.hook == hook);
        let (wait, first) = found.next()?;
        let others = match found.count() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        Some(format!(
            "pod {first}{others} waits longer than the deadline of the hook {}, until its operator {} {}",
            hook.as_str(),
            if wait.removes { "removes" } else { "adds" },
            wait.markers.join(", ")
        ))
    });
    let sentences: Vec<String> = sentences.collect();
    (pods.len(), (!sentences.is_empty()).then(|| sentences.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use podward_api::CloneSet;
    use podward_api::clone_set::HookOptions;
    use serde_json::json;

    use super::*;
    use crate::observe::{Observer, observe, spec_of};

    #[test]
    fn late_pods_are_named_by_hook() {
        let set: CloneSet = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"matchLabels": {"app": "web"}}, "template": {},
            "lifecycle": {
                "preNormal": {"labelsHandler": {"checked": "yes"}},
                "preDelete": {"labelsHandler": {"in-use": "true"}, "finalizersHandler": ["example.com/in-use"]},
            },
        }}))
        .unwrap();
        let spec = spec_of(&set, &set.hook_options().unwrap());
        let pod = |name: &str, state: &str, late: bool| {
            let pod = json!({"metadata": {
                "name": name, "labels": {"lifecycle.apps.kruise.io/state": state, "in-use": "true"},
                "finalizers": ["example.com/in-use"],
            }});
            let pod = Arc::new(serde_json::from_value(pod).unwrap());
            let update = ControllerRevision::default();
            let options = HookOptions::default();
            let observer = Observer::new(&set, &update, &[], options, Timestamp::UNIX_EPOCH);
            let seen = observe(&observer, &[pod]).seen.remove(0);
            SetPod { past_deadline: late, ..seen }
        };
        let pods = [
            pod("c", "PreparingDelete", true),
            pod("b", "PreparingDelete", true),
            pod("a", "PreparingDelete", false),
            pod("d", "PreparingNormal", true),
            pod("e", "Normal", true),
        ];
        let (count, text) = report(&spec, &pods);
        assert_eq!(count, 3);
        assert_eq!(
            text.unwrap(),
            "pod d waits longer than the deadline of the hook preNormal, until its operator adds checked=yes; pod b (and 1 \
             more) waits longer than the deadline of the hook preDelete, until its operator removes in-use=true, \
             example.com/in-use"
        );
        assert_eq!(report(&spec, &pods[4..]), (0, None));
    }
}
