//! The summary of all test programs, from their output.

use std::fmt;

/// The results in the output so far.
#[derive(Debug, Default)]
pub(super) struct TestReport {
    passed: u64,
    failed: Vec<String>,
    ignored: u64,
}

impl TestReport {
    /// Reads a line of the test harness: `test NAME ... FAILED`, or
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            for part in result.split(['.', ';']).map(str::trim) {
                match part.split_once(' ') {
                    Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                    Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                    _ => {}
                }
            }
        } else if let Some(name) = failed(line) {
            self.failed.push(name.to_owned());
        }
    }

    /// True if no test was run.
    pub(super) fn is_empty(&self) -> bool {
        self.passed == 0 && self.failed.is_empty()
    }

    /// True if a test failed.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tests passed, {} failed, {} ignored", self.passed, self.failed.len(), self.ignored)?;
        self.failed.iter().try_for_each(|name| write!(f, "\n  FAILED {name}"))
    }
}

/// Returns the name of the failed test if `line` reports one. Some harnesses pad names to a column.
fn failed(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?.trim_end();
    Some(name.strip_suffix("...")?.trim_end())
}

#[cfg(test)]
mod tests {
    use super::TestReport;

    #[test]
    fn the_results_of_all_programs_are_added_up() {
        let mut report = TestReport::default();
        for line in [
            "running 4 tests",
            "test a::works ... ok",
            "test a::breaks ... FAILED",
            "test b::padded    ... FAILED",
            "test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.22s",
            "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 7 filtered out; finished in 1.50s",
        ] {
            report.line(line);
        }
        assert_eq!(
            report.to_string(),
            "7 tests passed, 2 failed, 2 ignored\n  FAILED a::breaks\n  FAILED b::padded"
        );
    }
}
