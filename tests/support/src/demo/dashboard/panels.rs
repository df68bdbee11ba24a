//! The panels of the chart's dashboard.

use anyhow::{Context, Result};
use podward_images::workspace_dir;
use serde::Deserialize;

const FILE: &str = "charts/podward/files/dashboard.json";

/// The dashboard, as far as it is drawn.
#[derive(Debug, Deserialize)]
pub(super) struct Dashboard {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Panel {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    #[serde(rename = "gridPos")]
    pub(super) place: Place,
    #[serde(default)]
    pub(super) targets: Vec<Target>,
    #[serde(default)]
    field_config: FieldConfig,
}

/// The place of a panel on a grid of 24 columns.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Place {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) w: u32,
    pub(super) h: u32,
}

/// A query.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    expr: String,
    #[serde(default)]
    pub(super) legend_format: String,
}

#[derive(Debug, Default, Deserialize)]
struct FieldConfig {
    #[serde(default)]
    defaults: FieldDefaults,
}

#[derive(Debug, Default, Deserialize)]
struct FieldDefaults {
    #[serde(default)]
    unit: Option<String>,
}

impl Dashboard {
    /// Reads the rows of panels from the first one to the one before the row `end`.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no such row.
    pub(super) fn until_row(end: &str) -> Result<Self> {
        let path = workspace_dir().join(FILE);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut dashboard: Self =
            serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        let is_end = |panel: &Panel| panel.kind == "row" && panel.title == end;
        let end =
            dashboard.panels.iter().find(|panel| is_end(panel)).context("the dashboard has no such row")?;
        let end = end.place.y;
        dashboard.panels.retain(|panel| panel.place.y < end);
        Ok(dashboard)
    }
}

impl Panel {
    /// Returns the unit of its values, as Grafana names it.
    pub(super) fn unit(&self) -> &str {
        self.field_config.defaults.unit.as_deref().unwrap_or("short")
    }
}

impl Target {
    /// Returns the query for all namespaces and jobs, with this interval of rates.
    pub(super) fn query(&self, rate_interval: &str) -> String {
        let variables = [("$namespace", ".*"), ("$job", ".*"), ("$__rate_interval", rate_interval)];
        variables.iter().fold(self.expr.clone(), |query, (name, value)| query.replace(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_of_the_dashboard_are_read() {
        let dashboard = Dashboard::until_row("Hooks").unwrap();
        let rows: Vec<&str> = dashboard
            .panels
            .iter()
            .filter(|panel| panel.kind == "row")
            .map(|row| row.title.as_str())
            .collect();
        assert_eq!(rows, ["At a glance", "Operations", "Deletes and evictions"]);
        for panel in dashboard.panels.iter().filter(|panel| panel.kind != "row") {
            assert!(!panel.targets.is_empty(), "{} has no query", panel.title);
            for target in &panel.targets {
                let query = target.query("20s");
                assert!(!query.contains('$'), "{}: {query}", panel.title);
            }
        }
        assert!(Dashboard::until_row("no row").is_err());
    }
}
