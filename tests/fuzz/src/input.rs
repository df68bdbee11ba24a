//! The inputs of targets.

/// An input: a byte that selects what a target does with the body, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What the target does: its meaning is the target's own.
    pub variant: u8,
    /// The document that is parsed.
    pub body: Vec<u8>,
}

impl Input {
    /// Returns an input.
    #[must_use]
    pub fn new(variant: u8, body: impl Into<Vec<u8>>) -> Self {
        Self { variant, body: body.into() }
    }

    /// Reads the content of a file: the variant, then the body. An empty file is an empty body.
    #[must_use]
    pub fn from_file(content: &[u8]) -> Self {
        match content.split_first() {
            Some((variant, body)) => Self::new(*variant, body),
            None => Self::new(0, []),
        }
    }

    /// Returns the content of a file with this input.
    #[must_use]
    pub fn to_file(&self) -> Vec<u8> {
        [&[self.variant], self.body.as_slice()].concat()
    }
}
