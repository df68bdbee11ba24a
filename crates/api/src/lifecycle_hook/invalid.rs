//! The error of an invalid `LifecycleHook`.

use podward_core::hooks::InvalidSelector;
use thiserror::Error;

/// The error in an invalid hook.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidHook {
    /// A selector is invalid.
    #[error("{field}: {error}")]
    Selector {
        /// The field.
        field: &'static str,
        /// The error in it.
        error: InvalidSelector,
    },
    /// Another field is invalid.
    #[error("{field}: {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// The error in it, and what is valid.
        problem: String,
    },
}

pub(super) fn wrong<T>(field: &'static str, problem: impl Into<String>) -> Result<T, InvalidHook> {
    Err(InvalidHook::Field { field, problem: problem.into() })
}
