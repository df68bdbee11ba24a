//! What the doctor prints.

use std::fmt::Write;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::finding::{Finding, Level};

/// What a check has found.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) findings: Vec<Finding>,
}

/// All that was found.
#[derive(Debug)]
pub(super) struct Report {
    namespace: String,
    checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(namespace: String, checks: Vec<Check>) -> Self {
        Self { namespace, checks }
    }

    pub(super) fn failed(&self) -> bool {
        self.count(Level::Failed) > 0
    }

    fn count(&self, level: Level) -> usize {
        self.checks.iter().flat_map(|check| &check.findings).filter(|finding| finding.level == level).count()
    }

    /// For people: a line for each finding, and below it what to do.
    pub(super) fn table(&self) -> String {
        let mut table = format!("Podward in namespace {}, as version {VERSION} wants it\n", self.namespace);
        for Check { name, findings } in &self.checks {
            let _ = writeln!(table, "\n{name}");
            for Finding { level, what, next } in findings {
                let _ = writeln!(table, "  {:<9} {what}", mark(*level));
                if let Some(next) = next {
                    let _ = writeln!(table, "  {:<9} -> {next}", "");
                }
            }
        }
        let (failed, warnings) = (self.count(Level::Failed), self.count(Level::Warning));
        let end = match (failed, warnings) {
            (0, 0) => "All is well.".to_owned(),
            (0, warnings) => format!("Nothing failed; {warnings} deserve a look."),
            (failed, warnings) => format!("{failed} failed, {warnings} deserve a look."),
        };
        let _ = writeln!(table, "\n{end}");
        table
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn mark(level: Level) -> &'static str {
    match level {
        Level::Ok => "✓ ok",
        Level::Skipped => "- skipped",
        Level::Note => "- note",
        Level::Warning => "! warning",
        Level::Failed => "✗ failed",
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Report", 4)?;
        report.serialize_field("version", VERSION)?;
        report.serialize_field("namespace", &self.namespace)?;
        report.serialize_field("failed", &self.failed())?;
        report.serialize_field("checks", &self.checks)?;
        report.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(findings: Vec<Finding>) -> Report {
        Report::new("ours".to_owned(), vec![Check { name: "services", findings }])
    }

    #[test]
    fn notes_and_warnings_fail_nothing() {
        let fine = report(vec![Finding::ok("a"), Finding::skipped("b"), Finding::note("c")]);
        assert!(!fine.failed() && fine.table().ends_with("\nAll is well.\n"), "{}", fine.table());
        let odd = report(vec![Finding::warning("d", "look")]);
        assert!(!odd.failed() && odd.table().ends_with("\nNothing failed; 1 deserve a look.\n"));
        assert!(report(vec![Finding::failed("e", "mend")]).failed());
    }

    #[test]
    fn people_get_lines_and_machines_get_json() {
        let report = report(vec![Finding::ok("a"), Finding::failed("b is away", "bring b back")]);
        let lines = "\nservices\n  ✓ ok      a\n  ✗ failed  b is away\n            -> bring b back\n";
        assert!(report.table().contains(lines), "{}", report.table());
        let findings = json!([
            {"level": "ok", "what": "a"},
            {"level": "failed", "what": "b is away", "next": "bring b back"},
        ]);
        let expected = json!({
            "version": VERSION, "namespace": "ours", "failed": true,
            "checks": [{"name": "services", "findings": findings}],
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }
}
