//! What webhooks answer (kuperator, `podtransitionrule/processor/rules`; kube-api, `WebhookResponse` and `PollResponse`).

use serde_json::{Map, Value};

use super::metrics::Outcome;
use super::shortened;

/// The longest id of a task. It goes into URLs.
const MAX_TASK_ID: usize = 1024;
const MAX_MESSAGE: usize = 1024;

/// The answer to a batch of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PostAnswer {
    pub(super) success: bool,
    pub(super) message: String,
    pub(super) finished_names: Vec<String>,
    /// The task that goes on, when there is one: empty when the webhook forgot to name it.
    pub(super) task: Option<String>,
}

/// The answer to the question how a task is going.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PollAnswer {
    pub(super) success: bool,
    pub(super) message: String,
    pub(super) finished: bool,
    pub(super) finished_names: Vec<String>,
    pub(super) stop: bool,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The webhook says what can't be understood, or that it can't answer: the rule's failure policy decides.
    Webhook(String),
    /// Nobody is reached there, or nobody who is believed. The same.
    Unreachable(String),
    /// No answer in time. The same.
    Late(String),
    /// It was not asked, because something is wrong on this side: tried again, whatever the policy.
    Ours(String),
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Failure::Webhook(text)
            | Failure::Unreachable(text)
            | Failure::Late(text)
            | Failure::Ours(text) => text,
        }
    }

    /// Whether it is the webhook's, for which the rule's failure policy is.
    pub(super) fn is_webhooks(&self) -> bool {
        !matches!(self, Failure::Ours(_))
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Failure::Webhook(_) => Outcome::Failed,
            Failure::Unreachable(_) => Outcome::Unreachable,
            Failure::Late(_) => Outcome::Timeout,
            Failure::Ours(_) => Outcome::Unsent,
        }
    }
}

impl PostAnswer {
    /// Reads an answer as Go would: what is missing or null has its zero value, and the case of keys doesn't matter.
    pub(super) fn read(body: &[u8]) -> Result<Self, Failure> {
        let fields = Fields::read(body)?;
        let (task_id, trace_id) = (fields.text("taskId")?, fields.text("traceId")?);
        let goes_on = fields.flag("poll")? || fields.flag("async")?;
        let task = goes_on.then_some(if task_id.is_empty() { trace_id } else { task_id });
        if task.as_ref().is_some_and(|id| id.len() > MAX_TASK_ID) {
            return Err(Failure::Webhook(format!("the id of its task is longer than {MAX_TASK_ID} bytes")));
        }
        Ok(Self {
            success: fields.flag("success")?,
            message: shortened(&fields.text("message")?, MAX_MESSAGE),
            finished_names: fields.names("finishedNames")?,
            task,
        })
    }

    /// The same, if a rule that polls, or doesn't, can do something with it.
    pub(super) fn for_rule(self, polls: bool) -> Result<Self, Failure> {
        let wants = |problem: &str| Err(Failure::Webhook(format!("it wants to be polled, and {problem}")));
        match self.task.as_ref().filter(|_| self.success) {
            Some(id) if id.is_empty() => wants("names no task"),
            Some(_) if !polls => wants("the rule has no clientConfig.poll"),
            _ => Ok(self),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        match (self.success, &self.task) {
            (true, None) => Outcome::Passed,
            (true, Some(_)) => Outcome::Polling,
            (false, _) => Outcome::Rejected,
        }
    }
}

impl PollAnswer {
    /// The same.
    pub(super) fn read(body: &[u8]) -> Result<Self, Failure> {
        let fields = Fields::read(body)?;
        Ok(Self {
            success: fields.flag("success")?,
            message: shortened(&fields.text("message")?, MAX_MESSAGE),
            finished: fields.flag("finished")?,
            finished_names: fields.names("finishedNames")?,
            stop: fields.flag("stop")?,
        })
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self {
            PollAnswer { success: true, finished: true, .. } => Outcome::Passed,
            PollAnswer { stop: true, .. } => Outcome::Rejected,
            _ => Outcome::Polling,
        }
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn read(body: &[u8]) -> Result<Self, Failure> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(not_understood("it is no JSON object", body)),
            Err(error) => Err(not_understood(&format!("it is not JSON: {error}"), body)),
        }
    }

    fn get(&self, key: &str) -> &Value {
        let alike =
            || self.0.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)).map(|(_, value)| value);
        self.0.get(key).or_else(alike).unwrap_or(&Value::Null)
    }

    fn flag(&self, key: &str) -> Result<bool, Failure> {
        match self.get(key) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            other => {
                Err(not_understood(&format!("{key} is not true or false"), other.to_string().as_bytes()))
            }
        }
    }

    fn text(&self, key: &str) -> Result<String, Failure> {
        match self.get(key) {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            other => Err(not_understood(&format!("{key} is no text"), other.to_string().as_bytes())),
        }
    }

    fn names(&self, key: &str) -> Result<Vec<String>, Failure> {
        let bad = |other: &Value| {
            not_understood(&format!("{key} is no list of names"), other.to_string().as_bytes())
        };
        match self.get(key) {
            Value::Null => Ok(Vec::new()),
            Value::Array(names) => {
                names.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(|| bad(name))).collect()
            }
            other => Err(bad(other)),
        }
    }
}

fn not_understood(why: &str, what: &[u8]) -> Failure {
    let what = shortened(&String::from_utf8_lossy(what), 200);
    Failure::Webhook(format!("its answer can't be understood, {why}: {what:?}"))
}
