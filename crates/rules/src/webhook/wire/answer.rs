//! The answers of webhooks (kuperator, `podtransitionrule/processor/rules`; kube-api, `WebhookResponse` and
//! `PollResponse`).

use podward_api::shortened;

use super::super::outcome::RuleWebhookOutcome;
use super::answer_fields::AnswerFields;
use super::problem::AnswerProblem;

/// The longest id of a task, in bytes. The id is part of URLs.
const MAX_TASK_ID: usize = 1024;
/// Longer messages are cut to so many characters.
const MAX_MESSAGE: usize = 1024;

/// The answer to a batch of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostAnswer {
    /// True if the webhook agrees, or has begun a task.
    pub success: bool,
    /// The text for people, of at most 1024 characters.
    pub message: String,
    /// The names of the pods that the webhook has approved.
    pub finished_names: Vec<String>,
    /// The id of the task that runs; `None` if there is none. Empty if the webhook did not send an id.
    pub task: Option<String>,
}

/// The answer to the poll of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollAnswer {
    /// True if the task has not failed.
    pub success: bool,
    /// The text for people, of at most 1024 characters.
    pub message: String,
    /// True if the task has ended.
    pub finished: bool,
    /// The names of the pods that the webhook has approved.
    pub finished_names: Vec<String>,
    /// True if the webhook refuses the pods, so that the task is not polled again.
    pub stop: bool,
}

impl PostAnswer {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is not JSON, a field has another type, or the id of the task is too long.
    pub fn read(body: &[u8]) -> Result<Self, AnswerProblem> {
        let fields = AnswerFields::read(body)?;
        let (task_id, trace_id) = (fields.text("taskId")?, fields.text("traceId")?);
        let is_running = fields.flag("poll")? || fields.flag("async")?;
        let task = is_running.then_some(if task_id.is_empty() { trace_id } else { task_id });
        if task.as_ref().is_some_and(|id| id.len() > MAX_TASK_ID) {
            return Err(AnswerProblem::LongTaskId(MAX_TASK_ID));
        }
        Ok(Self {
            success: fields.flag("success")?,
            message: message(&fields)?,
            finished_names: fields.names("finishedNames")?,
            task,
        })
    }

    /// Returns the answer if the rule can use it. `polls` is true if the rule has `clientConfig.poll`.
    ///
    /// # Errors
    /// When a task runs that can't be polled.
    pub fn for_rule(self, polls: bool) -> Result<Self, AnswerProblem> {
        match self.task.as_ref().filter(|_| self.success) {
            Some(id) if id.is_empty() => Err(AnswerProblem::NoTaskId),
            Some(_) if !polls => Err(AnswerProblem::NoPoll),
            _ => Ok(self),
        }
    }

    pub(crate) fn outcome(&self) -> RuleWebhookOutcome {
        match (self.success, &self.task) {
            (true, None) => RuleWebhookOutcome::Passed,
            (true, Some(_)) => RuleWebhookOutcome::Polling,
            (false, _) => RuleWebhookOutcome::Rejected,
        }
    }
}

impl PollAnswer {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is not JSON, or a field has another type.
    pub fn read(body: &[u8]) -> Result<Self, AnswerProblem> {
        let fields = AnswerFields::read(body)?;
        Ok(Self {
            success: fields.flag("success")?,
            message: message(&fields)?,
            finished: fields.flag("finished")?,
            finished_names: fields.names("finishedNames")?,
            stop: fields.flag("stop")?,
        })
    }

    pub(crate) fn outcome(&self) -> RuleWebhookOutcome {
        match self {
            PollAnswer { success: true, finished: true, .. } => RuleWebhookOutcome::Passed,
            PollAnswer { stop: true, .. } => RuleWebhookOutcome::Rejected,
            _ => RuleWebhookOutcome::Polling,
        }
    }
}

/// Returns the message, which the status of the rule and the pods repeat. A body without the field `success` may be
/// that of any server, so its message is not repeated.
fn message(fields: &AnswerFields) -> Result<String, AnswerProblem> {
    let message = fields.text("message")?;
    Ok(if fields.has("success") { shortened(&message, MAX_MESSAGE) } else { String::new() })
}
