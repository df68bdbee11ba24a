//! The fields of an answer, read as Go reads JSON.

use serde_json::{Map, Value};

use super::problem::AnswerProblem;

/// The fields of an answer. As in Go, a missing or null field has its zero value, and keys are compared without case.
pub(super) struct AnswerFields(Map<String, Value>);

impl AnswerFields {
    pub(super) fn read(body: &[u8]) -> Result<Self, AnswerProblem> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(AnswerProblem::NoObject),
            Err(_) => Err(AnswerProblem::NotJson),
        }
    }

    fn get(&self, key: &str) -> &Value {
        let same_letters =
            || self.0.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)).map(|(_, value)| value);
        self.0.get(key).or_else(same_letters).unwrap_or(&Value::Null)
    }

    /// Returns true if the answer has this field, and it is not null.
    pub(super) fn has(&self, key: &str) -> bool {
        !self.get(key).is_null()
    }

    pub(super) fn flag(&self, key: &'static str) -> Result<bool, AnswerProblem> {
        match self.get(key) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(AnswerProblem::Field { field: key, problem: "not true or false" }),
        }
    }

    pub(super) fn text(&self, key: &'static str) -> Result<String, AnswerProblem> {
        match self.get(key) {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            _ => Err(AnswerProblem::Field { field: key, problem: "no text" }),
        }
    }

    pub(super) fn names(&self, key: &'static str) -> Result<Vec<String>, AnswerProblem> {
        let bad = AnswerProblem::Field { field: key, problem: "no list of names" };
        match self.get(key) {
            Value::Null => Ok(Vec::new()),
            Value::Array(names) => {
                names.iter().map(|name| name.as_str().map(str::to_owned).ok_or(bad)).collect()
            }
            _ => Err(bad),
        }
    }
}
