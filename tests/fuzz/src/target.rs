//! What is fuzzed.

use std::fmt;

use crate::input::Input;
use crate::outcome::Outcome;

/// The format of a target's bodies, so that mutations keep them readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON. Texts in it may contain JSON again.
    Json,
    /// Messages of Protocol Buffers.
    Protobuf,
}

/// Handles one input. An error is a guarantee that does not hold.
type Run = Box<dyn Fn(&Input) -> Result<Outcome, String> + Send>;

/// Code that reads what others have written.
pub struct Target {
    /// The name on the command line.
    pub name: &'static str,
    /// The format of bodies.
    pub format: Format,
    /// Valid inputs that mutations begin with.
    pub seeds: Vec<Input>,
    run: Run,
}

impl Target {
    /// Returns a target. `run` handles one input; its error is a guarantee that does not hold.
    pub fn new(
        name: &'static str,
        format: Format,
        seeds: Vec<Input>,
        run: impl Fn(&Input) -> Result<Outcome, String> + Send + 'static,
    ) -> Self {
        Self { name, format, seeds, run: Box::new(run) }
    }

    /// Handles one input.
    ///
    /// # Errors
    /// Says which guarantee does not hold.
    pub fn run(&self, input: &Input) -> Result<Outcome, String> {
        (self.run)(input)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}
