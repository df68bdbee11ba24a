//! What is waited for, and what is told meanwhile.

use std::fmt;

use anyhow::{Result, bail};
use clap::ValueEnum;
use podward_core::keys::{DELETE_OPERATION, Stage, TO_DELETE};
use podward_core::{Operations, Pod};

use crate::lifecycle_message::lifecycle_message;
use crate::terminal::tell;

/// A state of a pod that a command waits for.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// The operation with this id has its permission.
    Permitted(String),
    /// The operation with this id has ended.
    Ended(String),
    /// The pod is in service, without an operation.
    Available,
    /// The pod is gone.
    Gone,
}

/// The states in the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GoalName {
    /// The operation may begin
    Permitted,
    /// The operation has ended
    Ended,
    /// The pod is in service
    Available,
    /// The pod is gone
    Gone,
}

impl GoalName {
    pub(crate) fn of(self, id: &str) -> Goal {
        match self {
            GoalName::Permitted => Goal::Permitted(id.to_owned()),
            GoalName::Ended => Goal::Ended(id.to_owned()),
            GoalName::Available => Goal::Available,
            GoalName::Gone => Goal::Gone,
        }
    }
}

/// What a wait has ended with: a sentence.
#[derive(Debug)]
pub(crate) struct Waited(pub(crate) String);

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::Permitted(id) => write!(f, "permitted to be operated on by {id}"),
            Goal::Ended(id) => write!(f, "done with operation {id}"),
            Goal::Available => f.write_str("in service"),
            Goal::Gone => f.write_str("gone"),
        }
    }
}

impl Goal {
    /// Returns a sentence if the pod has reached the goal. `None` is a pod that does not exist.
    ///
    /// # Errors
    /// When it cannot reach the goal any more.
    pub(super) fn reached(&self, pod: Option<&Pod>, name: &str) -> Result<Option<Waited>> {
        let done = |text: String| Ok(Some(Waited(text)));
        let Some(pod) = pod else {
            return match self {
                Goal::Gone | Goal::Ended(_) => done(format!("pod {name} is gone")),
                Goal::Permitted(_) | Goal::Available => bail!("pod {name} is gone"),
            };
        };
        let view = pod.view();
        let operations = Operations::parse(view.labels);
        // One that is postponed has no operation until it begins again.
        let is_requested = |id: &str| {
            id == DELETE_OPERATION
                && (view.labels.contains_key(TO_DELETE) || view.facts.deletion_request.is_some())
        };
        match self {
            Goal::Permitted(id) => match operations.get(id) {
                // While another operation goes on, one that has finished keeps its permission.
                Some(operation) if operation.is_live() && !operation.has(Stage::Operating) => {
                    bail!("operation {id} of pod {name} has finished")
                }
                Some(operation) if operation.has(Stage::Operate) => {
                    done(format!("pod {name} is out of service: operation {id} may work on it"))
                }
                Some(operation) if operation.is_live() => Ok(None),
                _ if is_requested(id) => Ok(None),
                _ => bail!("pod {name} has no operation {id}, or it was cancelled"),
            },
            Goal::Ended(id)
                if operations.get(id).is_none_or(|operation| !operation.is_live()) && !is_requested(id) =>
            {
                done(format!("operation {id} of pod {name} has ended"))
            }
            Goal::Available if view.terminating => bail!("pod {name} is being deleted"),
            Goal::Available if operations.is_service_available() && view.ready && !operations.any_live() => {
                done(format!("pod {name} is in service"))
            }
            Goal::Ended(_) | Goal::Available | Goal::Gone => Ok(None),
        }
    }
}

/// The pod that is waited for: the first one that was seen with its name.
#[derive(Debug)]
pub(super) struct SamePod(Option<String>);

impl SamePod {
    /// `uid` is that of the pod, if it was seen before.
    pub(super) fn new(uid: Option<&str>) -> Self {
        Self(uid.map(ToOwned::to_owned))
    }

    pub(super) fn is(&mut self, pod: &Pod) -> bool {
        self.0.get_or_insert_with(|| pod.metadata.uid.clone()) == &pod.metadata.uid
    }
}

/// Tells what a pod waits for when that changes.
#[derive(Debug, Default)]
pub(super) struct Progress(String);

impl Progress {
    pub(super) fn tell(&mut self, name: &str, pod: &Pod) {
        let message = lifecycle_message(pod, &Operations::parse(pod.view().labels));
        if message != self.0 {
            tell(&format!("pod {name}: {message}"));
            self.0 = message;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(labels: &Value) -> Pod {
        pod_with(labels, &json!({}))
    }

    fn pod_with(labels: &Value, more: &Value) -> Pod {
        let mut all = json!({"kusionstack.io/control": "true"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let mut pod = json!({
            "metadata": {"namespace": "shop", "name": "web", "labels": all},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        json_patch::merge(&mut pod, more);
        serde_json::from_value(pod).unwrap()
    }

    fn begun(more: &[(&str, &str)]) -> Value {
        let mut labels = json!({
            "operating.podopslifecycle.kusionstack.io/up": "1",
            "operation-type.podopslifecycle.kusionstack.io/up": "restart",
        });
        for (key, value) in more {
            labels[*key] = json!(value);
        }
        labels
    }

    #[test]
    fn goals_are_reached_by_labels() {
        let is =
            |goal: &Goal, labels: &Value| goal.reached(Some(&pod(labels)), "shop/web").unwrap().is_some();
        let permitted = Goal::Permitted("up".to_owned());
        assert!(!is(&permitted, &begun(&[])));
        assert!(is(&permitted, &begun(&[("operate.podopslifecycle.kusionstack.io/up", "2")])));
        assert!(permitted.reached(Some(&pod(&json!({}))), "shop/web").is_err());
        let finished = json!({
            "operate.podopslifecycle.kusionstack.io/up": "2",
            "done-operation-type.podopslifecycle.kusionstack.io/up": "restart",
            "operating.podopslifecycle.kusionstack.io/other": "1",
            "operation-type.podopslifecycle.kusionstack.io/other": "restart",
        });
        let error = permitted.reached(Some(&pod(&finished)), "shop/web").unwrap_err();
        assert_eq!(error.to_string(), "operation up of pod shop/web has finished");
        let ended = Goal::Ended("up".to_owned());
        assert!(!is(&ended, &begun(&[])));
        assert!(is(&ended, &json!({})));
        let available = json!({"podopslifecycle.kusionstack.io/service-available": "1"});
        assert!(is(&Goal::Available, &available));
        assert!(!is(&Goal::Available, &begun(&[("podopslifecycle.kusionstack.io/service-available", "1")])));
        assert!(!is(&Goal::Gone, &available));
        assert!(Goal::Gone.reached(None, "shop/web").unwrap().is_some());
        assert!(Goal::Available.reached(None, "shop/web").is_err());
    }

    #[test]
    fn a_deletion_request_without_an_operation_is_waited_for() {
        let requested = pod(&json!({TO_DELETE: "1"}));
        let annotation = json!({"metadata": {"annotations": {"podward.io/deletion-request": "{}"}}});
        let withdrawn = pod_with(&json!({}), &annotation);
        for goal in [Goal::Ended, Goal::Permitted] {
            for pod in [&requested, &withdrawn] {
                let reached = |id: &str| goal(id.to_owned()).reached(Some(pod), "shop/web");
                assert!(reached(DELETE_OPERATION).unwrap().is_none());
                assert!(!matches!(reached("up"), Ok(None)), "the request is no operation up");
            }
        }
    }

    #[test]
    fn a_pod_that_replaces_the_first_one_is_another() {
        let with_uid = |uid: &str| pod_with(&json!({}), &json!({"metadata": {"uid": uid}}));
        let is_gone = |pod: &Pod, same: &mut SamePod| {
            let state = Some(pod).filter(|pod| same.is(pod));
            Goal::Gone.reached(state, "shop/web").unwrap().is_some()
        };
        let mut same = SamePod::new(None);
        assert!(!is_gone(&with_uid("u"), &mut same) && !is_gone(&with_uid("u"), &mut same));
        assert!(is_gone(&with_uid("v"), &mut same));
        assert!(is_gone(&with_uid("v"), &mut SamePod::new(Some("u"))));
    }

    #[test]
    fn a_pod_that_is_not_ready_or_being_deleted_is_not_available() {
        let labels = json!({"podopslifecycle.kusionstack.io/service-available": "1"});
        let reached = |more: Value| Goal::Available.reached(Some(&pod_with(&labels, &more)), "shop/web");
        assert!(reached(json!({})).unwrap().is_some());
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        assert!(reached(not_ready).unwrap().is_none());
        let error = reached(json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}})).unwrap_err();
        assert_eq!(error.to_string(), "pod shop/web is being deleted");
    }
}
