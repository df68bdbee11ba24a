//! The summary of all test programs, from their output.

use std::collections::VecDeque;
use std::fmt;

/// How many lines of a failure are shown from its beginning. The cause of a failed test of the cluster is there.
const FIRST_LINES: usize = 4;
/// How many lines are shown from its end. The cause of a failed assertion is there.
const LAST_LINES: usize = 8;
/// How many characters of a line are shown.
const WIDTH: usize = 400;

/// The results in the output so far.
#[derive(Debug, Default)]
pub(super) struct TestReport {
    passed: u64,
    failed: Vec<FailedTest>,
    ignored: u64,
    /// How many of the ignored tests need root.
    need_root: u64,
    /// The name of the test whose output is being read.
    reading: Option<String>,
}

#[derive(Debug, Default)]
struct FailedTest {
    name: String,
    first_lines: Vec<String>,
    last_lines: VecDeque<String>,
}

impl FailedTest {
    fn line(&mut self, line: String) {
        if self.first_lines.len() < FIRST_LINES {
            return self.first_lines.push(line);
        }
        self.last_lines.push_back(line);
        if self.last_lines.len() > LAST_LINES {
            self.last_lines.pop_front();
        }
    }
}

impl TestReport {
    /// Reads a line of the test harness: `test NAME ... FAILED`,
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`, or the output of a failed test after
    /// `---- NAME ----` or `---- NAME stdout ----`.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.reading = None;
            for part in result.split(['.', ';']).map(str::trim) {
                match part.split_once(' ') {
                    Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                    Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                    _ => {}
                }
            }
        } else if line.starts_with("test [needs root] ") && line.ends_with("ignored") {
            self.need_root += 1;
        } else if let Some(name) = failed(line) {
            self.failed.push(FailedTest { name: name.to_owned(), ..FailedTest::default() });
        } else if line == "failures:" {
            self.reading = None;
        } else if let Some(name) = begins_output(line) {
            self.reading = Some(name.to_owned());
        } else if let Some(name) = &self.reading {
            self.output(&name.clone(), line);
        }
    }

    fn output(&mut self, name: &str, line: &str) {
        // Programs may have tests of the same name: the output is that of the program that ended last.
        let Some(test) = self.failed.iter_mut().rfind(|test| test.name == name) else { return };
        if !line.trim().is_empty() && !is_of_backtrace(line) {
            test.line(line.chars().take(WIDTH).collect());
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
        if self.need_root > 0 {
            write!(f, " ({} of them because they need root)", self.need_root)?;
        }
        for FailedTest { name, first_lines, last_lines } in &self.failed {
            write!(f, "\n  FAILED {name}")?;
            let mut lines = first_lines.iter().chain(last_lines);
            lines.try_for_each(|line| write!(f, "\n    {line}"))?;
        }
        Ok(())
    }
}

/// Returns the name of the failed test if `line` reports one. Some harnesses pad names to a column.
fn failed(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?.trim_end();
    Some(name.strip_suffix("...")?.trim_end())
}

/// Returns the name of the failed test if its output begins after `line`.
fn begins_output(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

/// Returns whether the line belongs to a backtrace, or to the advice how to get one.
fn is_of_backtrace(line: &str) -> bool {
    let frame = line.trim_start();
    let numbered = frame.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let indented = frame.len() < line.len() && (numbered || frame.starts_with("at "));
    indented || line == "stack backtrace:" || line.starts_with("note: ")
}

#[cfg(test)]
mod tests {
    use super::TestReport;

    fn report(lines: &[&str]) -> String {
        let mut report = TestReport::default();
        lines.iter().for_each(|line| report.line(line));
        report.to_string()
    }

    #[test]
    fn the_results_of_all_programs_are_added_up() {
        let lines = [
            "running 4 tests",
            "test a::works ... ok",
            "test a::breaks ... FAILED",
            "test b::padded    ... FAILED",
            "test [needs root] c::starts_a_node ... ignored",
            "test c::is_slow ... ignored",
            "test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.22s",
            "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 7 filtered out; finished in 1.50s",
        ];
        assert_eq!(
            report(&lines),
            "7 tests passed, 2 failed, 2 ignored (1 of them because they need root)\n  FAILED a::breaks\n  FAILED b::padded"
        );
    }

    #[test]
    fn a_failed_test_is_shown_with_the_beginning_and_the_end_of_its_output() {
        let mut lines = vec![
            "test a::breaks ... FAILED",
            "test b ... FAILED",
            "",
            "failures:",
            "",
            "---- a::breaks stdout ----",
        ];
        lines.extend(["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"]);
        lines.extend(["stack backtrace:", "   0: begin_unwind", "             at ./src/panicking.rs:1:5"]);
        lines.extend(["note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", ""]);
        lines.extend(["---- b ----", "why: it is so", "", "failures:", "    a::breaks", "    b"]);
        assert_eq!(
            report(&lines),
            "0 tests passed, 2 failed, 0 ignored\n  FAILED a::breaks\n    1\n    2\n    3\n    4\n    6\n    7\n    8\n    9\n    10\n    11\n    12\n    13\n  \
             FAILED b\n    why: it is so"
        );
    }
}
