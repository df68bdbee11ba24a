//! What several programs print at the same time, so that it can be read: what one says of its failures stays together.

/// The lines of one program on their way to the terminal.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// What is said of failures, until all of it was said.
    held: Option<Vec<String>>,
}

impl Output {
    /// Takes a line of the test harness; gives those that may be printed now.
    pub(super) fn line(&mut self, line: String) -> Vec<String> {
        if line == "failures:" && self.held.is_none() {
            self.held = Some(Vec::new());
        }
        let Some(mut held) = self.held.take() else { return vec![line] };
        let is_last = line.starts_with("test result: ");
        held.push(line);
        if is_last {
            return held;
        }
        self.held = Some(held);
        Vec::new()
    }

    /// What is left when there are no more lines.
    pub(super) fn rest(self) -> Vec<String> {
        self.held.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Output;

    #[test]
    fn what_is_said_of_failures_stays_together() {
        let mut output = Output::default();
        let mut printed = Vec::new();
        for line in [
            "test a ... ok",
            "failures:",
            "---- b stdout ----",
            "failures:",
            "    b",
            "test result: FAILED. 1 passed; 1 failed",
            "running 2 tests",
            "failures:",
            "---- c stdout ----",
        ] {
            printed.push(output.line(line.to_owned()).len());
        }
        assert_eq!(printed, [1, 0, 0, 0, 0, 5, 1, 0, 0]);
        assert_eq!(output.rest(), ["failures:", "---- c stdout ----"]);
    }
}
