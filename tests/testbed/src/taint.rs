//! The taints of nodes.

use std::{fmt, str::FromStr};

/// The effects that Kubernetes knows.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A taint of a node, written as kubectl writes it: `KEY=VALUE:EFFECT` or `KEY:EFFECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

impl FromStr for Taint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no taint: write KEY=VALUE:EFFECT or KEY:EFFECT");
        let (key, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (key, value) = key.split_once('=').unwrap_or((key, ""));
        if key.is_empty() {
            return Err(wrong());
        }
        if !EFFECTS.contains(&effect) {
            return Err(format!("{text:?} has the effect {effect:?}: use one of {}", EFFECTS.join(", ")));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_is_read_as_it_is_written() {
        for text in ["example.com/only=tests:NoSchedule", "spare:NoExecute"] {
            assert_eq!(text.parse::<Taint>().unwrap().to_string(), text);
        }
        for text in ["spare", "=x:NoSchedule", ":NoSchedule", "spare:Never"] {
            text.parse::<Taint>().unwrap_err();
        }
    }
}
