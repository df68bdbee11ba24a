//! How far the in-place update of a pod is.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::pending_update::PendingUpdate;
use super::replaced::is_replaced;
use super::resized;
use super::update_state::{LastStatus, UpdateState};
use crate::pod::{ContainerStatus, Pod};

/// How far the in-place update of a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has ended, or there was none. The containers need not be Ready, and need not even run.
    Complete,
    /// It waits for this.
    Waits(String),
    /// It waits for this, which may never happen: people have to know.
    Blocked(String),
    /// The next writes can be made; see [`next`](super::next).
    NextBatch,
    /// Its containers stay as they are until then.
    Grace {
        /// The end of the grace period.
        until: Timestamp,
    },
}

/// A container that was changed and does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    /// The name of the container.
    pub(crate) container: String,
    /// Why it does not run, in the words of its status.
    pub(crate) reason: String,
}

/// The in-place update of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// How far it is.
    pub(crate) progress: Progress,
    /// The containers that were changed and do not run. They do not keep the update from ending, only the containers
    /// with lower priorities from changing.
    pub(crate) failing: Vec<Failing>,
}

/// Returns how far the in-place update of the pod is.
#[must_use]
pub(crate) fn progress(pod: &Pod, now: Timestamp) -> Report {
    let state = match UpdateState::of(pod) {
        Ok(state) => state.unwrap_or_default(),
        Err(error) => return Report { progress: Progress::Blocked(error), failing: Vec::new() },
    };
    Report { progress: progress_of(pod, &state, now), failing: failing(pod, &state) }
}

fn progress_of(pod: &Pod, state: &UpdateState, now: Timestamp) -> Progress {
    match PendingUpdate::of(pod) {
        Err(error) => return Progress::Blocked(error),
        Ok(Some(pending)) => {
            let end = pending.end(state).filter(|end| now < *end && !pending.is_void(pod));
            return end.map_or(Progress::NextBatch, |until| Progress::Grace { until });
        }
        Ok(None) => {}
    }
    let missing =
        state.last_container_statuses.iter().find(|(name, last)| !is_replaced(pod, state, name, last));
    if let Some((name, last)) = missing {
        return match pod.container_status(name).and_then(stopped) {
            Some(reason) => Progress::Waits(format!("the container {name} is not replaced yet: {reason}")),
            None if keeps_image(pod, name, last) => Progress::Blocked(format!(
                "the container {name} has to be stopped, so that it starts with its new environment"
            )),
            None => Progress::Waits(format!("the container {name} is not replaced yet")),
        };
    }
    if state.update_resources {
        if let Some(refusal) = resized::refused(pod) {
            return Progress::Blocked(refusal);
        }
        if let Some(missing) = resized::missing(pod) {
            return Progress::Waits(missing);
        }
    }
    let waiting = state.waiting();
    if waiting.is_empty() {
        return Progress::Complete;
    }
    let required = state.pre_check_before_next.iter().flat_map(|it| &it.containers_required_ready);
    let mut not_ready = required.filter(|name| !pod.container_status(name).is_some_and(|it| it.ready));
    match not_ready.next() {
        None => Progress::NextBatch,
        Some(name) => {
            let others = waiting.containers().into_iter().collect::<Vec<_>>().join(", ");
            Progress::Waits(format!(
                "the container {name} is not Ready, and {others} can change only after it"
            ))
        }
    }
}

/// Returns true if the kubelet has no reason to replace the container.
fn keeps_image(pod: &Pod, name: &str, last: &LastStatus) -> bool {
    let image = pod.container(name).and_then(|it| it.image.as_ref());
    image.is_some() && image == last.image.as_ref()
}

/// Returns the containers that were changed and do not run.
fn failing(pod: &Pod, state: &UpdateState) -> Vec<Failing> {
    let changed = state.container_batches_record.iter().flat_map(|it| &it.containers);
    let names: BTreeSet<&String> = changed.chain(state.last_container_statuses.keys()).collect();
    let failing = |name: &String| {
        Some(Failing { container: name.clone(), reason: stopped(pod.container_status(name)?)? })
    };
    names.into_iter().filter_map(failing).collect()
}

/// Returns why the container does not run. `None` if it runs, or is about to start.
fn stopped(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().filter(|it| !it.is_empty()).unwrap_or("Terminated");
        return Some(format!("{reason} with exit code {}", ended.exit_code));
    }
    let waiting = state.waiting.as_ref()?;
    let reason =
        waiting.reason.as_deref().filter(|it| !["", "ContainerCreating", "PodInitializing"].contains(it))?;
    Some(match waiting.message.as_deref().filter(|it| !it.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    })
}
