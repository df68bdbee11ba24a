//! The exit status of a process.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, if the process exited.
    pub code: Option<i32>,
    /// The signal, if a signal ended the process.
    pub signal: Option<i32>,
}

impl Exit {
    /// Returns whether the process exited with code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("an unknown status"),
        }
    }
}
