//! A requirement of the test cluster that the machine lacks.

use std::fmt;

/// A requirement that the machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRequirement {
    /// The requirement.
    pub what: String,
    /// The reason why it is needed.
    pub why: String,
    /// The command that fixes it.
    pub fix: String,
}

impl MissingRequirement {
    pub(super) fn new(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), fix: fix.into() }
    }
}

impl fmt::Display for MissingRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, needed {}; to fix it: {}", self.what, self.why, self.fix)
    }
}
