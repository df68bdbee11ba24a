//! The report of the doctor.

use std::fmt::Write;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::finding::{Finding, FindingLevel};
use crate::terminal::safe_line;

/// The findings of a check.
#[derive(Debug, Serialize)]
pub(super) struct CheckReport {
    pub(super) name: &'static str,
    pub(super) findings: Vec<Finding>,
}

/// The findings of all checks.
#[derive(Debug)]
pub(super) struct DoctorReport {
    /// The first line of the text.
    title: String,
    /// Podward's namespace. `None` if the report is not about an installation.
    namespace: Option<String>,
    checks: Vec<CheckReport>,
}

impl DoctorReport {
    pub(super) fn new(namespace: String, checks: Vec<CheckReport>) -> Self {
        let title = format!("Podward in namespace {namespace}, checked against version {VERSION}");
        Self { title, namespace: Some(namespace), checks }
    }

    /// The report on a cluster before Podward is installed.
    pub(super) fn before(checks: Vec<CheckReport>) -> Self {
        Self { title: format!("The cluster, checked for Podward {VERSION}"), namespace: None, checks }
    }

    /// The report on the resource definitions in the cluster before Helm goes back to this version.
    pub(super) fn before_rollback(checks: Vec<CheckReport>) -> Self {
        let title = format!("The resource definitions, checked for a rollback to Podward {VERSION}");
        Self { title, namespace: None, checks }
    }

    pub(super) fn failed(&self) -> bool {
        self.count(FindingLevel::Failed) > 0
    }

    fn count(&self, level: FindingLevel) -> usize {
        self.checks.iter().flat_map(|check| &check.findings).filter(|finding| finding.level == level).count()
    }

    /// Returns the report as text: a line for each finding, and the next step below it. Findings contain texts of others.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{}\n", self.title);
        for CheckReport { name, findings } in &self.checks {
            let _ = writeln!(table, "\n{name}");
            for Finding { level, what, next } in findings {
                let _ = writeln!(table, "  {:<9} {}", mark(*level), safe_line(what));
                if let Some(next) = next {
                    let _ = writeln!(table, "  {:<9} -> {}", "", safe_line(next));
                }
            }
        }
        let (failed, warnings) = (self.count(FindingLevel::Failed), self.count(FindingLevel::Warning));
        let end = match (failed, warnings) {
            (0, 0) => "No problems found.".to_owned(),
            (0, warnings) => format!("0 failed, {warnings} warnings."),
            (failed, warnings) => format!("{failed} failed, {warnings} warnings."),
        };
        let _ = writeln!(table, "\n{end}");
        table
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn mark(level: FindingLevel) -> &'static str {
    match level {
        FindingLevel::Ok => "✓ ok",
        FindingLevel::Skipped => "- skipped",
        FindingLevel::Note => "- note",
        FindingLevel::Warning => "! warning",
        FindingLevel::Failed => "✗ failed",
    }
}

impl Serialize for DoctorReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("DoctorReport", 4)?;
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

    fn report(findings: Vec<Finding>) -> DoctorReport {
        DoctorReport::new("ours".to_owned(), vec![CheckReport { name: "services", findings }])
    }

    #[test]
    fn notes_and_warnings_are_no_failures() {
        let fine = report(vec![Finding::ok("a"), Finding::skipped("b"), Finding::note("c")]);
        assert!(!fine.failed() && fine.table().ends_with("\nNo problems found.\n"), "{}", fine.table());
        let odd = report(vec![Finding::warning("d", "look")]);
        assert!(!odd.failed() && odd.table().ends_with("\n0 failed, 1 warnings.\n"));
        assert!(report(vec![Finding::failed("e", "fix")]).failed());
    }

    #[test]
    fn texts_of_others_are_no_lines_of_the_table() {
        let report = report(vec![Finding::failed("names \u{1b}[2Jx\n  ✓ ok      all", "look at\nx")]);
        let table = report.table();
        assert!(table.contains("✗ failed  names \\u{1b}[2Jx   ✓ ok      all\n"), "{table}");
        assert!(table.contains("-> look at x\n") && !table.contains('\u{1b}'), "{table}");
    }

    #[test]
    fn the_table_has_lines_and_json_has_fields() {
        let report = report(vec![Finding::ok("a"), Finding::failed("b is down", "start b")]);
        let lines = "\nservices\n  ✓ ok      a\n  ✗ failed  b is down\n            -> start b\n";
        assert!(report.table().contains(lines), "{}", report.table());
        let findings = json!([
            {"level": "ok", "what": "a"},
            {"level": "failed", "what": "b is down", "next": "start b"},
        ]);
        let expected = json!({
            "version": VERSION, "namespace": "ours", "failed": true,
            "checks": [{"name": "services", "findings": findings}],
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }
}
