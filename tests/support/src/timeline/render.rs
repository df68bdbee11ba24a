//! Prints timelines.

use std::fmt::Write as _;

use super::report::{PodReport, TimelineReport};

/// Returns everything that happened to one pod, one line each.
#[must_use]
pub fn pod(report: &PodReport) -> String {
    let mut text = format!("pod {}\n", report.name);
    let _ = writeln!(text, "  {:>10}  {:<12} {:<10} phase", "ms", "id", "type");
    for event in &report.events {
        let id = event.id.as_deref().unwrap_or("");
        let operation_type = event.operation_type.as_deref().unwrap_or("");
        // Changes of the whole pod are indented, to separate them from the phases of its operations.
        let indent = if event.id.is_none() { "    " } else { "" };
        let _ =
            writeln!(text, "  {:>10.1}  {id:<12} {operation_type:<10} {indent}{}", event.at_ms, event.what);
    }
    text
}

/// Returns the violations, and the timelines of their pods.
#[must_use]
pub fn violations(report: &TimelineReport) -> String {
    let mut text = format!("{} invariants failed:\n", report.violations.len());
    for violation in &report.violations {
        let _ = writeln!(
            text,
            "  {} at {:.1} ms: {}: {}",
            violation.pod, violation.at_ms, violation.rule, violation.seen
        );
    }
    let concerned =
        report.pods.iter().filter(|pod| report.violations.iter().any(|violation| violation.pod == pod.name));
    for report in concerned {
        text.push_str(&pod(report));
    }
    text
}
