//! The figures of reports, side by side.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// Returns a table with each figure of the reports `base` and `now`: the median of both sides, and the change. A change is
/// called one only if no run of one side is between the runs of the other.
pub(super) fn table(base: &[Value], now: &[Value]) -> String {
    let (base, now) = (figures(base), figures(now));
    let mut table = format!("{:50} {:>12} {:>12} {:>8}\n", "figure", "base", "now", "change");
    for (name, now) in &now {
        let Some(base) = base.get(name) else {
            let _ = writeln!(table, "{name:50} {:>12} {:>12}", "-", shown(median(now)));
            continue;
        };
        let (before, after) = (median(base), median(now));
        let change = match before {
            0.0 => String::new(),
            before => format!("{:+.1} %", 100.0 * (after - before) / before),
        };
        let word = if !are_apart(base, now) {
            "  within the runs"
        } else if after < before {
            "  less"
        } else {
            "  more"
        };
        let _ = writeln!(table, "{name:50} {:>12} {:>12} {change:>8}{word}", shown(before), shown(after));
    }
    table
}

/// The values of each number in `reports`, by its path.
fn figures(reports: &[Value]) -> BTreeMap<String, Vec<f64>> {
    let mut found = BTreeMap::new();
    reports.iter().for_each(|report| add(&mut found, String::new(), report));
    found
}

fn add(found: &mut BTreeMap<String, Vec<f64>>, path: String, value: &Value) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Number(number) => found.entry(path).or_default().extend(number.as_f64()),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| add(found, below(name), value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(place, value)| add(found, below(&place.to_string()), value));
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Returns whether all values of one side are below all of the other.
fn are_apart(one: &[f64], other: &[f64]) -> bool {
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most(one) < least(other) || most(other) < least(one)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(low), Some(high)) if sorted.len().is_multiple_of(2) => f64::midpoint(*low, *high),
        (_, found) => found.copied().unwrap_or(f64::NAN),
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{value:.0}"),
        small if small < 0.1 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_one_only_if_the_sides_are_apart() {
        let base = [
            json!({"seconds": 10.0, "groups": [{"writes": 3}], "same": 4, "name": "x"}),
            json!({"seconds": 12.0, "groups": [{"writes": 5}], "same": 4}),
        ];
        let now = [
            json!({"seconds": 5.0, "groups": [{"writes": 4}], "same": 4, "new": 0.02}),
            json!({"seconds": 6.0, "groups": [{"writes": 6}], "same": 4, "new": 0.02}),
        ];
        let table = table(&base, &now);
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [
                vec!["groups.0.writes", "4.00", "5.00", "+25.0", "%", "within", "the", "runs"],
                vec!["new", "-", "0.0200"],
                vec!["same", "4.00", "4.00", "+0.0", "%", "within", "the", "runs"],
                vec!["seconds", "11.00", "5.50", "-50.0", "%", "less"],
            ]
        );
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        assert_eq!(
            [median(&[3.0, 1.0]), median(&[9.0, 1.0, 2.0]), median(&[7.0])].map(shown),
            ["2.00", "2.00", "7.00"]
        );
        assert!(median(&[]).is_nan());
    }
}
