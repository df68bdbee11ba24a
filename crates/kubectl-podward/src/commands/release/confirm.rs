//! Asks the user whether to go on.

use std::io::{IsTerminal, Write, stderr, stdin, stdout};

use anyhow::{Context, Result, ensure};

/// A user who is asked, at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirm {
    /// Whether the standard output is a terminal. If not, the user sees the standard error.
    has_stdout: bool,
}

impl Confirm {
    /// Returns who is asked. `None` if nobody can be, because jobs and programs have no terminal, or if the user has
    /// answered in the command line: `yes`.
    ///
    /// # Errors
    /// When the user would not see the question.
    pub(super) fn new(yes: bool) -> Result<Option<Self>> {
        Self::of(stdin().is_terminal(), stdout().is_terminal(), stderr().is_terminal(), yes)
    }

    /// `stdin`, `stdout` and `stderr` are true for a terminal.
    fn of(stdin: bool, stdout: bool, stderr: bool, yes: bool) -> Result<Option<Self>> {
        if yes || !stdin {
            return Ok(None);
        }
        ensure!(
            stdout || stderr,
            "nothing was changed, because you would not see the question: give --yes, or let the output or the errors \
             go to the terminal"
        );
        Ok(Some(Self { has_stdout: stdout }))
    }

    /// Shows a text. Adds no line break.
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
        let of = |stdin, stdout, stderr, yes| Confirm::of(stdin, stdout, stderr, yes).unwrap();
        assert_eq!(of(true, true, true, false), Some(Confirm { has_stdout: true }));
        assert_eq!(of(true, true, false, false), Some(Confirm { has_stdout: true }));
        assert_eq!(of(true, false, true, false), Some(Confirm { has_stdout: false }));
        for (stdin, terminals, yes) in
            [(false, true, false), (false, false, false), (true, true, true), (true, false, true)]
        {
            assert_eq!(of(stdin, terminals, terminals, yes), None);
        }
    }

    #[test]
    fn a_user_who_would_not_see_the_question_is_not_asked() {
        let error = Confirm::of(true, false, false, false).unwrap_err().to_string();
        assert!(error.contains("give --yes"), "{error}");
    }
}
