//! Timelines for people.

use std::fmt::Write as _;

use super::{OperationRecord, PodReport, Report};

/// Everything that happened to one pod, a line each.
#[must_use]
pub fn pod(report: &PodReport) -> String {
    let mut text = format!("pod {}\n", report.name);
    let _ = writeln!(text, "  {:>10}  {:<12} {:<10} phase", "ms", "id", "type");
    for event in &report.events {
        let id = event.id.as_deref().unwrap_or("");
        let operation_type = event.operation_type.as_deref().unwrap_or("");
        // What concerns the pod as a whole stands apart from the phases of its operations.
        let indent = if event.id.is_none() { "    " } else { "" };
        let _ =
            writeln!(text, "  {:>10.1}  {id:<12} {operation_type:<10} {indent}{}", event.at_ms, event.what);
    }
    text
}

/// One row an operation: how long it took, and whether it was right.
#[must_use]
pub fn table(report: &Report) -> String {
    let width = report.pods.iter().map(|pod| pod.name.len()).max().unwrap_or(0).max(3);
    let id_width =
        report.pods.iter().flat_map(|pod| &pod.operations).map(|op| op.id.len()).max().unwrap_or(0).max(2);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<width$}  {:<id_width$}  {:<10}  {:>16}  {:>17}  {:>19}  {:>12}  {:>10}  {:>10}  labels left",
        "pod",
        "id",
        "type",
        "begin>operate ms",
        "operate>finish ms",
        "finish>available ms",
        "kubelet's ms",
        "gate False",
        "no holders",
    );
    for pod in &report.pods {
        let left = if pod.labels_left.is_empty() { "none".to_owned() } else { pod.labels_left.join(", ") };
        for operation in &pod.operations {
            let _ = writeln!(
                text,
                "{:<width$}  {:<id_width$}  {:<10}  {:>16}  {:>17}  {:>19}  {:>12}  {:>10}  {:>10}  {left}",
                pod.name,
                operation.id,
                operation.operation_type.as_deref().unwrap_or("?"),
                number(operation.begin_to_operate()),
                finish(operation),
                number(operation.finish_to_available()),
                number(operation.kubelet()),
                yes_no(operation.gate_off_at_operate),
                yes_no(operation.free_at_operate),
            );
        }
    }
    text
}

fn finish(operation: &OperationRecord) -> String {
    if operation.cancelled { "cancelled".to_owned() } else { number(operation.operate_to_finish()) }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn yes_no(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "-",
    }
}

/// What was wrong, and the timelines of the pods that it concerns.
#[must_use]
pub fn violations(report: &Report) -> String {
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
