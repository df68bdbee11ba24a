//! The fields of an answer, read as Go reads JSON.

use serde_json::{Map, Value};

use super::super::super::text::shortened;
use super::failure::WebhookFailure;

/// The fields of an answer. As in Go, a missing or null field has its zero value, and keys are compared without case.
pub(super) struct AnswerFields(Map<String, Value>);

impl AnswerFields {
    pub(super) fn read(body: &[u8]) -> Result<Self, WebhookFailure> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(unreadable("it is no JSON object", body)),
            Err(error) => Err(unreadable(&format!("it is not JSON: {error}"), body)),
        }
    }

    fn get(&self, key: &str) -> &Value {
        let same_letters =
            || self.0.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)).map(|(_, value)| value);
        self.0.get(key).or_else(same_letters).unwrap_or(&Value::Null)
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, WebhookFailure> {
        match self.get(key) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            other => Err(unreadable(&format!("{key} is not true or false"), other.to_string().as_bytes())),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<String, WebhookFailure> {
        match self.get(key) {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            other => Err(unreadable(&format!("{key} is no text"), other.to_string().as_bytes())),
        }
    }

    pub(super) fn names(&self, key: &str) -> Result<Vec<String>, WebhookFailure> {
        let bad =
            |other: &Value| unreadable(&format!("{key} is no list of names"), other.to_string().as_bytes());
        match self.get(key) {
            Value::Null => Ok(Vec::new()),
            Value::Array(names) => {
                names.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(|| bad(name))).collect()
            }
            other => Err(bad(other)),
        }
    }
}

fn unreadable(why: &str, what: &[u8]) -> WebhookFailure {
    let what = shortened(&String::from_utf8_lossy(what), 200);
    WebhookFailure::Webhook(format!("its answer can't be understood, {why}: {what:?}"))
}
