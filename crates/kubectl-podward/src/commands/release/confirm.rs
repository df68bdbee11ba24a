//! Asks the user whether to go on.

use std::io::{IsTerminal, Write, stderr, stdin, stdout};

use anyhow::{Context, Result};

/// A user who is asked, at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirm {
    /// Whether the standard output is a terminal. If not, the user sees the standard error.
    has_stdout: bool,
}

impl Confirm {
    /// Returns who is asked. `None` if nobody can be: jobs and programs have no terminal.
    pub(super) fn new(yes: bool) -> Option<Self> {
        Self::of(stdin().is_terminal(), stdout().is_terminal(), yes)
    }

    /// `stdin` and `stdout` are true for a terminal, and `yes` if the user has answered in the command line.
    fn of(stdin: bool, stdout: bool, yes: bool) -> Option<Self> {
        (stdin && !yes).then_some(Self { has_stdout: stdout })
    }

    /// Shows a text, without a line break at its end.
    ///
    /// # Errors
    /// When the output is closed.
    pub(super) fn show(self, text: &str) -> Result<()> {
        let mut out: Box<dyn Write> = if self.has_stdout { Box::new(stdout()) } else { Box::new(stderr()) };
        write!(out, "{text}").and_then(|()| out.flush()).context("write to the terminal")
    }

    /// Asks, and returns whether the answer is yes.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub(super) async fn ask(self, question: &str) -> Result<bool> {
        self.show(&format!("{question} [y/N] "))?;
        let read = tokio::task::spawn_blocking(|| {
            let mut answer = String::new();
            stdin().read_line(&mut answer).map(|_| answer)
        });
        Ok(is_yes(&read.await.context("wait for an answer")?.context("read the answer")?))
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes(" Yes "));
        assert!(!is_yes("") && !is_yes("n") && !is_yes("yesterday"));
    }

    #[test]
    fn a_user_whose_output_is_a_pipe_is_asked_too() {
        assert_eq!(Confirm::of(true, true, false), Some(Confirm { has_stdout: true }));
        assert_eq!(Confirm::of(true, false, false), Some(Confirm { has_stdout: false }));
        for (stdin, stdout, yes) in [(false, true, false), (false, false, false), (true, true, true)] {
            assert_eq!(Confirm::of(stdin, stdout, yes), None);
        }
    }
}
