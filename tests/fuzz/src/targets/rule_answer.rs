//! The answers of rules' webhooks: bytes from any server that a rule names.

use podward_api::pod_transition_rule::WebhookUrl;
use podward_rules::{AnswerProblem, PollAnswer, PostAnswer};
use serde_json::json;

use crate::input::Input;
use crate::outcome::Outcome;
use crate::target::{Format, Target};

/// The longest text of a webhook that is kept, in characters.
const MAX_TEXT: usize = 1024;
/// The longest text of an error, in characters: it contains nothing of the answer.
const MAX_ERROR: usize = 100;

pub(super) fn target() -> Target {
    let post = json!({
        "success": true, "message": "done", "poll": true, "async": false, "taskId": "t-1", "traceId": "r-1",
        "finishedNames": ["web-0", "web-1"],
    });
    let poll = json!({
        "success": true, "message": "", "finished": false, "finishedNames": ["web-0"], "stop": true,
    });
    let seeds = vec![
        Input::new(0, post.to_string()),
        Input::new(1, poll.to_string()),
        Input::new(2, json!({"Success": true, "TASKID": "x"}).to_string()),
    ];
    Target::new("rule-answer", Format::Json, seeds, run)
}

fn run(input: &Input) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    if input.variant % 2 == 1 {
        match PollAnswer::read(&input.body) {
            Ok(answer) => {
                bounded(&answer.message)?;
                outcome.add((answer.success, answer.finished, answer.stop));
                outcome.size(answer.finished_names.len());
            }
            Err(problem) => failed(&problem, &mut outcome)?,
        }
        return Ok(outcome);
    }
    let polls = input.variant & 2 == 0;
    match PostAnswer::read(&input.body).and_then(|answer| answer.for_rule(polls)) {
        Ok(answer) => {
            bounded(&answer.message)?;
            outcome.add((answer.success, answer.task.is_some()));
            outcome.size(answer.finished_names.len());
            if let Some(task) = &answer.task {
                poll_url(task)?;
            }
        }
        Err(problem) => failed(&problem, &mut outcome)?,
    }
    Ok(outcome)
}

fn bounded(text: &str) -> Result<(), String> {
    // Cut texts end with a mark.
    let length = text.chars().count();
    (length <= MAX_TEXT + 8).then_some(()).ok_or_else(|| format!("a message of {length} characters is kept"))
}

fn failed(problem: &AnswerProblem, outcome: &mut Outcome) -> Result<(), String> {
    let text = problem.to_string();
    outcome.text(&text);
    let length = text.chars().count();
    (length <= MAX_ERROR).then_some(()).ok_or_else(|| format!("an error of {length} characters"))
}

/// The id of a task is a part of the URL of the next call. It must not lead to another server or another path.
fn poll_url(task: &str) -> Result<(), String> {
    let url = WebhookUrl::parse("https://checks.example:8443/poll?kind=a")?;
    let uri = url.for_task("trace", task);
    let is_same =
        uri.host() == Some("checks.example") && uri.port_u16() == Some(8443) && uri.path() == "/poll";
    let is_added = uri.query().is_some_and(|query| query.starts_with("kind=a&trace="));
    let is_one = uri.query().is_some_and(|query| query.matches('&').count() == 1);
    (is_same && is_added && is_one).then_some(()).ok_or_else(|| format!("the task leads to {uri}"))
}
