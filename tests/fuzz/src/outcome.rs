//! What a target did with an input, as a number that is the same for inputs that are alike.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The longest part of a text that counts, in bytes.
const TEXT_LIMIT: usize = 160;

/// Collects what a target did. Inputs with another outcome than all before are kept and mutated further.
#[derive(Debug, Default)]
pub struct Outcome(DefaultHasher);

impl Outcome {
    /// Returns the outcome of one step.
    #[must_use]
    pub fn of(step: impl Hash) -> Self {
        let mut outcome = Self::default();
        outcome.add(step);
        outcome
    }

    /// Adds a step.
    pub fn add(&mut self, step: impl Hash) {
        step.hash(&mut self.0);
    }

    /// Adds a message. Digits and quoted parts do not count, because they repeat the input.
    pub fn text(&mut self, text: &str) {
        let mut is_quoted = false;
        for byte in text.bytes().take(TEXT_LIMIT) {
            if byte == b'"' || byte == b'`' {
                is_quoted = !is_quoted;
            } else if !is_quoted && byte.is_ascii_alphabetic() {
                byte.hash(&mut self.0);
            }
        }
    }

    /// Adds the magnitude of a number: 0, 1, 2, 3 to 4, 5 to 8 and so on.
    pub fn size(&mut self, number: usize) {
        number.checked_next_power_of_two().hash(&mut self.0);
    }

    pub(crate) fn signature(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        let mut outcome = Outcome::default();
        outcome.text(text);
        outcome.signature()
    }

    #[test]
    fn messages_about_other_parts_of_an_input_are_the_same_outcome() {
        assert_eq!(of("expected u32 at line 1 column 7"), of("expected u32 at line 1 column 812"));
        assert_eq!(of("no label \"a\""), of("no label \"b\""));
        assert_ne!(of("no label \"a\""), of("no name \"a\""));
    }
}
