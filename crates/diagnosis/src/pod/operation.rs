//! Operations of Podward, and evictions that budgets refuse.

use k8s_openapi::api::core::v1::Pod;
use podward_core::Operations;
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, LIFECYCLE_CONDITION};

use crate::cause::{Case, Cause};
use crate::command::Commands;
use crate::snapshot::Snapshot;
use crate::words::shortened;

use super::budgets;
use crate::pod_view::condition;

/// Returns whether an operation of the lifecycle is in progress.
#[must_use]
pub fn is_live(pod: &Pod) -> bool {
    let Some(labels) = &pod.metadata.labels else { return false };
    is_controlled(pod) && Operations::parse(labels).iter().any(|(_, operation)| operation.is_live())
}

/// Returns whether Podward holds a pod that has opted in: an operation is in progress, or the stored condition says that the
/// pod waits for something else than its containers.
#[must_use]
pub fn is_held(pod: &Pod) -> bool {
    let waits = condition(pod, LIFECYCLE_CONDITION)
        .is_some_and(|found| found.status == "False" && found.reason.as_deref() != Some("NotReady"));
    is_live(pod) || (waits && is_controlled(pod))
}

fn is_controlled(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(CONTROL_LABEL)).is_some_and(|value| value == CONTROL_VALUE)
}

pub(super) fn add(causes: &mut Vec<Cause>, snapshot: &Snapshot, operation: Option<&str>) {
    let pod = &snapshot.pod;
    let Some(text) = operation else { return };
    let commands = Commands(pod);
    let since = condition(pod, LIFECYCLE_CONDITION).and_then(|it| it.last_transition_time.as_ref());
    let budget = budgets::cause(snapshot).filter(|_| text.contains("disruption budget"));
    let next = match hook(text) {
        Some(hook) => format!("kubectl describe lifecyclehook {hook}"),
        None => commands.kubectl(&format!("get pod {} -o yaml", commands.name())),
    };
    let what = shortened(text, 600);
    let cause = Cause::new(Case::Operation, format!("pod {}", snapshot.pod_name()), what);
    causes.extend(budget);
    causes.push(cause.since(since.map(|time| time.0)).next(next));
}

/// Returns the first hook that the message of the lifecycle condition names.
fn hook(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("hook ")?;
    let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || "-.".contains(letter)));
    let name = rest.get(..end.unwrap_or(rest.len()))?.trim_end_matches('.');
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{hook, is_held};
    use crate::pod::may_have_causes;

    #[test]
    fn a_ready_pod_that_waits_for_a_hook_may_have_causes() {
        let pod = |label: &str, status: &str, reason: &str| {
            serde_json::from_value(json!({
                "metadata": {"labels": {"kusionstack.io/control": label}},
                "status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "podward.io/lifecycle", "status": status, "reason": reason},
                ]},
            }))
            .unwrap()
        };
        for (pod, held) in [
            (pod("true", "False", "EnteringService"), true),
            (pod("true", "False", "NotReady"), false),
            (pod("true", "True", "InService"), false),
            (pod("false", "False", "EnteringService"), false),
        ] {
            assert_eq!((is_held(&pod), may_have_causes(&pod)), (held, held), "{pod:?}");
        }
    }

    #[test]
    fn the_hook_that_is_waited_for_is_named() {
        let waits = "operation up (update) waits for hook shop.web to release the pod; its permission follows. hook shop.web: PREPARE";
        assert_eq!(hook(waits), Some("shop.web"));
        assert_eq!(hook("waits for hook balancer."), Some("balancer"));
        assert_eq!(hook("waits for the owners of prot.podopslifecycle.kusionstack.io/x"), None);
    }
}
