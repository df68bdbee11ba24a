//! The states of a pod.

use std::fmt;
use std::str::FromStr;

/// The state of a pod of a CloneSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is new. The `preNormal` hook has to confirm it.
    PreparingNormal,
    /// It is in use.
    Normal,
    /// The `inPlaceUpdate` hook has to release it.
    PreparingUpdate,
    /// Its containers are replaced.
    Updating,
    /// The `inPlaceUpdate` hook has to confirm it.
    Updated,
    /// The `preDelete` hook has to release it.
    PreparingDelete,
}

impl State {
    /// All states.
    pub const ALL: [State; 6] = [
        State::PreparingNormal,
        State::Normal,
        State::PreparingUpdate,
        State::Updating,
        State::Updated,
        State::PreparingDelete,
    ];

    /// Returns the value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            State::PreparingNormal => "PreparingNormal",
            State::Normal => "Normal",
            State::PreparingUpdate => "PreparingUpdate",
            State::Updating => "Updating",
            State::Updated => "Updated",
            State::PreparingDelete => "PreparingDelete",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;

    /// Parses the value of the label.
    ///
    /// # Errors
    /// Returns a text for people if it is no state.
    fn from_str(text: &str) -> Result<Self, String> {
        State::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
            format!("{text:?} is no state of a pod; the states are {}", known.join(", "))
        })
    }
}
