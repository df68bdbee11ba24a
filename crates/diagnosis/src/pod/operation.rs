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
    let is_controlled = labels.get(CONTROL_LABEL).is_some_and(|value| value == CONTROL_VALUE);
    is_controlled && Operations::parse(labels).iter().any(|(_, operation)| operation.is_live())
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
    use super::hook;

    #[test]
    fn the_hook_that_is_waited_for_is_named() {
        let waits = "operation up (update) waits for hook shop.web to release the pod; its permission follows. hook shop.web: PREPARE";
        assert_eq!(hook(waits), Some("shop.web"));
        assert_eq!(hook("waits for hook balancer."), Some("balancer"));
        assert_eq!(hook("waits for the owners of prot.podopslifecycle.kusionstack.io/x"), None);
    }
}
