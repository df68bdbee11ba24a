//! The table of waiting pods.

use std::fmt::Write;

use anstyle::Style;
use podward_core::UnixNanos;
use podward_diagnosis::safe_text;
use serde::Serialize;

use super::row::PodRow;
use crate::terminal::{BAD, LineStyle};

/// The characters of the last column. The rest is shown by `kubectl podward why`.
const WAITS_FOR: usize = 72;

/// The styles of lines: pods that wait too long stand out.
pub(super) const STYLE: LineStyle = |_, line| if line.contains("   overdue ") { BAD } else { Style::new() };

/// The waiting pods, and totals.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodTable {
    waiting: Vec<PodRow>,
    totals: Totals,
    #[serde(skip)]
    all_namespaces: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    opted_in: usize,
    waiting: usize,
    overdue: usize,
    without_gate: usize,
}

impl PodTable {
    /// `rows` are all opted-in pods. `all_namespaces` adds a column.
    pub(super) fn new(rows: Vec<PodRow>, all_namespaces: bool) -> Self {
        let count = |is: &dyn Fn(&PodRow) -> bool| rows.iter().filter(|row| is(row)).count();
        let totals = Totals {
            opted_in: rows.len(),
            waiting: count(&|row| row.waiting),
            overdue: count(&|row| row.waiting && row.overdue),
            without_gate: count(&|row| !row.has_gate),
        };
        let mut waiting: Vec<PodRow> = rows.into_iter().filter(|row| row.waiting).collect();
        // Those that wait longest come first, and those of which that is not known last.
        let key =
            |row: &PodRow| (row.since.is_none(), row.since.clone(), row.namespace.clone(), row.name.clone());
        waiting.sort_by_cached_key(key);
        Self { waiting, totals, all_namespaces }
    }

    /// Returns the table, and the line with the totals.
    pub(super) fn text(&self, now: UnixNanos) -> String {
        let mut lines = vec![header(self.all_namespaces)];
        lines.extend(self.waiting.iter().map(|row| cells(row, self.all_namespaces, now)));
        let mut text = if self.waiting.is_empty() { String::new() } else { aligned(&lines) };
        let Totals { opted_in, waiting, overdue, without_gate } = self.totals;
        let _ = writeln!(
            text,
            "{opted_in} opted in, {waiting} waiting, {overdue} overdue, {without_gate} without gate"
        );
        text
    }

    /// Returns the names of the waiting pods.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|row| row.name.as_str())
    }
}

fn header(all_namespaces: bool) -> Vec<String> {
    let namespace = all_namespaces.then_some("NAMESPACE");
    let names = ["POD", "OPERATION", "PHASE", "FOR", "UNTIL", "WAITS FOR"];
    namespace.into_iter().chain(names).map(ToOwned::to_owned).collect()
}

/// Returns the cells of a row.
pub(super) fn cells(row: &PodRow, all_namespaces: bool, now: UnixNanos) -> Vec<String> {
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let time = |text: &Option<String>| text.as_deref().and_then(UnixNanos::parse);
    let age = time(&row.since).map(|since| short(now.since(since).as_secs())).unwrap_or_default();
    let until = time(&row.until).map(|until| match row.overdue {
        true => format!("overdue {}", short(now.since(until).as_secs())),
        false => format!("in {}", short(until.since(now).as_secs())),
    });
    let mut waits_for: String = row.waits_for.chars().take(WAITS_FOR).collect();
    if waits_for.len() < row.waits_for.len() {
        waits_for.push_str("...");
    }
    let namespace = all_namespaces.then(|| row.namespace.clone());
    let cells = [
        row.name.clone(),
        or_dash(row.operations.join(", ")),
        row.phase.clone(),
        or_dash(age),
        or_dash(until.unwrap_or_default()),
        waits_for,
    ];
    namespace.into_iter().chain(cells).map(|cell| safe_text(&cell.replace('\n', " "))).collect()
}

/// Returns lines whose columns begin at the same places.
fn aligned(lines: &[Vec<String>]) -> String {
    let width =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|it| it.chars().count()).max();
    let mut text = String::new();
    for line in lines {
        let last = line.len().saturating_sub(1);
        for (column, cell) in line.iter().enumerate() {
            let width = if column == last { 0 } else { width(column).unwrap_or(0) + 3 };
            let _ = write!(text, "{cell:width$}");
        }
        text.push('\n');
    }
    text
}

/// Returns a duration as kubectl shows ages.
fn short(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> UnixNanos {
        UnixNanos::parse("2026-01-01T10:03:00Z").unwrap()
    }

    fn row(name: &str, labels: Value, condition: (&str, &str, &str), gate: bool) -> PodRow {
        let mut all = json!({"kusionstack.io/control": "true"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let gates =
            if gate { json!([{"conditionType": "pod.kusionstack.io/service-ready"}]) } else { json!([]) };
        let (status, reason, message) = condition;
        of(&json!({
            "metadata": {"name": name, "labels": all},
            "spec": {"readinessGates": gates},
            "status": {"conditions": [
                {"type": "podward.io/lifecycle", "status": status, "reason": reason, "message": message},
                {"type": "pod.kusionstack.io/service-ready", "status": "True"},
                {"type": "Ready", "status": "True"},
            ]},
        }))
    }

    /// The row of an opted-in pod.
    fn of(more: &Value) -> PodRow {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "uid": "u", "labels": {"kusionstack.io/control": "true"}},
        });
        json_patch::merge(&mut pod, more);
        PodRow::of(&serde_json::from_value(pod).unwrap(), now()).unwrap()
    }

    fn in_service() -> Value {
        json!({"podopslifecycle.kusionstack.io/service-available": "1"})
    }

    fn upgrade() -> Value {
        json!({
            "operating.podopslifecycle.kusionstack.io/upgrade": "1767261600000000000",
            "operation-type.podopslifecycle.kusionstack.io/upgrade": "update",
            "pre-checked.podopslifecycle.kusionstack.io/upgrade": "1767261600000000000",
            "preparing.podopslifecycle.kusionstack.io/upgrade": "1767261600000000000",
            "operation-permission.podopslifecycle.kusionstack.io/update": "1767261600000000000",
        })
    }

    fn rows() -> Vec<PodRow> {
        let waits = |until: &str| {
            format!(
                "operation upgrade (update) waits for hook registry. hook registry: PREPARE since 2026-01-01T10:01:00Z, \
                     no answer yet; {until}, and the pod keeps waiting"
            )
        };
        vec![
            row("web-0", in_service(), ("True", "InService", "the pod is in service"), true),
            row(
                "web-1",
                upgrade(),
                ("False", "Preparing", &waits("overdue since 2026-01-01T10:02:00Z")),
                true,
            ),
            row("web-2", upgrade(), ("False", "Preparing", &waits("due by 2026-01-01T10:05:30Z")), false),
        ]
    }

    #[test]
    fn waiting_pods_have_a_row_and_all_are_counted() {
        let text = PodTable::new(rows(), false).text(now());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "POD     OPERATION          PHASE       FOR   UNTIL         WAITS FOR");
        assert!(
            lines[1]
                .starts_with("web-1   upgrade (update)   Preparing   3m    overdue 60s   operation upgrade"),
            "{text}"
        );
        assert!(
            lines[2]
                .starts_with("web-2   upgrade (update)   Preparing   3m    in 2m         operation upgrade"),
            "{text}"
        );
        assert!(lines[2].ends_with("..."), "{text}");
        assert_eq!(lines[3], "3 opted in, 2 waiting, 1 overdue, 1 without gate");
    }

    #[test]
    fn other_outputs_say_the_same() {
        let table = PodTable::new(rows(), true);
        assert!(table.text(now()).starts_with("NAMESPACE   POD"), "{}", table.text(now()));
        assert_eq!(table.names().collect::<Vec<_>>(), ["web-1", "web-2"]);
        let json = serde_json::to_value(&table).unwrap();
        assert_eq!(json["waiting"][0]["until"], "2026-01-01T10:02:00Z");
        assert_eq!(json["totals"], json!({"optedIn": 3, "waiting": 2, "overdue": 1, "withoutGate": 1}));
    }

    /// A pod that is not in service and has no operation, with these metadata and this lifecycle condition.
    fn at_rest(name: &str, mut metadata: Value, condition: Value) -> PodRow {
        metadata["name"] = json!(name);
        let mut gate = json!([{"type": "pod.kusionstack.io/service-ready", "status": "False"}]);
        gate.as_array_mut().unwrap().extend(condition.as_array().unwrap().clone());
        let gates = json!([{"conditionType": "pod.kusionstack.io/service-ready"}]);
        of(&json!({"metadata": metadata, "spec": {"readinessGates": gates}, "status": {"conditions": gate}}))
    }

    #[test]
    fn a_pod_without_an_operation_waits_since_its_condition_its_deletion_or_its_creation() {
        let created = json!({"creationTimestamp": "2026-01-01T10:00:00Z"});
        let deleted = json!({
            "creationTimestamp": "2026-01-01T09:00:00Z", "deletionTimestamp": "2026-01-01T10:03:10Z",
            "deletionGracePeriodSeconds": 30,
        });
        let condition = json!([{
            "type": "podward.io/lifecycle", "status": "False", "reason": "EnteringService", "message": "waits for x",
            "lastTransitionTime": "2026-01-01T10:02:00Z",
        }]);
        let rows = vec![
            at_rest("unknown", json!({}), json!([])),
            at_rest("told", created.clone(), condition),
            at_rest("deleted", deleted, json!([])),
            at_rest("created", created, json!([])),
        ];
        let table = PodTable::new(rows, false);
        let found: Vec<_> =
            table.waiting.iter().map(|row| (row.name.as_str(), row.since.as_deref())).collect();
        let expected = [
            ("created", Some("2026-01-01T10:00:00Z")),
            ("told", Some("2026-01-01T10:02:00Z")),
            ("deleted", Some("2026-01-01T10:02:40Z")),
            ("unknown", None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_phase_and_the_message_are_about_the_same_state() {
        let row = row("web-0", upgrade(), ("True", "InService", "the pod is in service"), true);
        assert_eq!(row.phase, "Preparing");
        assert!(row.waits_for.starts_with("operation upgrade (update) waits for "), "{}", row.waits_for);
        // A pod in service has no condition.
        let gate = "pod.kusionstack.io/service-ready";
        let in_service = of(&json!({
            "metadata": {"name": "web-1", "labels": in_service()}, "spec": {"readinessGates": [{"conditionType": gate}]},
            "status": {"conditions": [{"type": gate, "status": "True"}, {"type": "Ready", "status": "True"}]},
        }));
        assert_eq!((in_service.phase.as_str(), in_service.waiting), ("InService", false));
    }

    #[test]
    fn without_waiting_pods_there_are_only_totals() {
        let text = PodTable::new(Vec::new(), false).text(now());
        assert_eq!(text, "0 opted in, 0 waiting, 0 overdue, 0 without gate\n");
    }
}
