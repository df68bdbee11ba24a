//! The states of webhooks in the status of a PodTransitionRule, cut to their limit.
//!
//! A pod of a task that is not stored is sent to the webhook again after a restart. Nothing else is lost, and no pod
//! passes because of it.

use podward_api::pod_transition_rule::{RuleState, TaskInfo, WebhookStatus};
use podward_api::shortened;
use podward_core::rules::JsonRoom;

/// The largest size of all states, in bytes of JSON.
const LIMIT: usize = 48 * 1024;
/// The longest message, in characters.
const MESSAGE_LIMIT: usize = 256;
/// The size of the names and brackets of the lists to fill.
const LISTS: usize = r#""processing":[],"approved":[],"requests":[],"#.len();

/// Returns the part of `states` that fits. Each rule has a share, and leaves what it does not use to the next rules.
/// Running tasks come before ended ones: the oldest of the running tasks, and the latest of the ended ones. Pods that a
/// task has not approved come before those that it has.
pub(super) fn fitting(states: Vec<RuleState>) -> Vec<RuleState> {
    let mut left = LIMIT;
    let mut rules = states.len();
    let mut fitting = Vec::new();
    for state in states {
        let share = left / rules;
        let mut room = JsonRoom(share);
        fitting.extend(cut(state, &mut room));
        left -= share - room.0;
        rules -= 1;
    }
    fitting
}

/// Returns the part of a rule's state that fits; `None` if nothing does.
fn cut(state: RuleState, room: &mut JsonRoom) -> Option<RuleState> {
    let RuleState { name, webhook_status } = state;
    let status = webhook_status?;
    let empty = RuleState { name: name.clone(), webhook_status: Some(WebhookStatus::default()) };
    room.take(JsonRoom::bytes_in_list(&empty) + r#""taskStates":[],"history":[]"#.len()).then_some(())?;
    let task_states: Vec<TaskInfo> =
        status.task_states.into_iter().map_while(|task| shorter(task, room)).collect();
    let mut history: Vec<TaskInfo> =
        status.history.into_iter().rev().map_while(|task| shorter(task, room)).collect();
    history.reverse();
    let status = WebhookStatus { task_states, history };
    (status != WebhookStatus::default()).then_some(RuleState { name, webhook_status: Some(status) })
}

/// Returns the task with the pods that fit; `None` if no pod fits.
fn shorter(task: TaskInfo, room: &mut JsonRoom) -> Option<TaskInfo> {
    let TaskInfo { processing, approved, requests, message, .. } = task;
    let message = shortened(&message, MESSAGE_LIMIT);
    let none = Vec::new();
    let bare = TaskInfo { processing: none.clone(), approved: none.clone(), requests: none, message, ..task };
    let mut rest = JsonRoom(room.0);
    rest.take(JsonRoom::bytes_in_list(&bare) + LISTS).then_some(())?;
    let (waiting, all) = (processing.len(), processing.len() + approved.len());
    let mut requests = requests.into_iter();
    let mut pods = processing.into_iter().chain(approved).map(|pod| (pod, requests.next())).enumerate();
    let mut cut = bare;
    let fits = |(_, (pod, request)): &(usize, (String, Option<String>))| {
        rest.take(JsonRoom::bytes_in_list(pod) + request.as_ref().map_or(0, JsonRoom::bytes_in_list))
    };
    let mut pods: Vec<_> = pods.by_ref().take_while(fits).collect();
    if pods.is_empty() && all > 0 {
        return None;
    }
    for (place, (pod, request)) in pods.drain(..) {
        if place < waiting {
            cut.processing.push(pod)
        } else {
            cut.approved.push(pod)
        }
        cut.requests.extend(request);
    }
    *room = rest;
    Some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, length: usize) -> Vec<String> {
        (0..count).map(|pod| format!("{pod:0length$}")).collect()
    }

    fn task(id: &str, processing: usize, approved: usize, length: usize) -> TaskInfo {
        TaskInfo {
            task_id: id.to_owned(),
            processing: names(processing, length),
            approved: names(approved, length),
            message: "soon".to_owned(),
            requests: names(processing + approved, 16),
            ..TaskInfo::default()
        }
    }

    fn state(name: &str, task_states: Vec<TaskInfo>, history: Vec<TaskInfo>) -> RuleState {
        RuleState { name: name.to_owned(), webhook_status: Some(WebhookStatus { task_states, history }) }
    }

    #[test]
    fn a_text_within_the_limit_is_not_changed() {
        let ended = TaskInfo { requests: Vec::new(), ..task("0", 1, 9, 30) };
        let states = vec![
            state("a", vec![task("1", 200, 20, 30), task("2", 50, 0, 30)], vec![ended.clone(), ended]),
            state("b", vec![task("3", 100, 0, 30)], Vec::new()),
        ];
        assert_eq!(fitting(states.clone()), states);
        assert!(fitting(Vec::new()).is_empty());
    }

    #[test]
    fn each_rule_has_a_share_and_cut_tasks_can_continue() {
        let big = || vec![task("1", 5000, 10, 253), task("2", 1, 0, 253)];
        let found = fitting(vec![state("a", big(), Vec::new()), state("b", big(), vec![task("0", 1, 0, 9)])]);
        assert!(JsonRoom::bytes_in_list(&found) <= LIMIT + 2, "{}", JsonRoom::bytes_in_list(&found));
        assert_eq!(found.len(), 2);
        for state in &found {
            let status = state.webhook_status.as_ref().unwrap();
            let task = &status.task_states[0];
            assert!(task.processing.len() > 70 && task.approved.is_empty(), "{}", task.processing.len());
            assert_eq!(task.processing, names(task.processing.len(), 253));
            assert_eq!(task.requests, names(task.processing.len(), 16), "each pod has its key");
        }
    }

    #[test]
    fn the_latest_ended_tasks_stay() {
        let ended = (0..400).map(|id| task(&id.to_string(), 0, 10, 30)).collect();
        let found = fitting(vec![state("a", vec![task("running", 1, 0, 9)], ended)]);
        let status = found[0].webhook_status.as_ref().unwrap();
        assert_eq!(status.task_states.len(), 1);
        assert!((20..400).contains(&status.history.len()), "{}", status.history.len());
        assert_eq!(status.history.last().unwrap().task_id, "399");
    }
}
