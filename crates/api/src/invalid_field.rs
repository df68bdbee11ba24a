//! The error of an invalid field.

use std::fmt;

/// A field of a resource that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField {
    /// The path of the field, such as `spec.port`.
    pub field: String,
    /// What is wrong with it, and what is valid.
    pub problem: String,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for InvalidField {}

pub(crate) fn invalid<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, InvalidField> {
    Err(InvalidField { field: field.into(), problem: problem.into() })
}
