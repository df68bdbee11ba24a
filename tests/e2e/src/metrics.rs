//! The table of metrics in `docs/reference/metrics.md`, and the metrics that services expose.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use podward_images::workspace_dir;
use podward_support::ServiceKind;

/// A documented metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The name in queries. For a histogram it has no suffix `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// `counter`, `histogram` or `gauge`.
    pub kind: &'static str,
    /// The names of its labels.
    pub labels: BTreeSet<String>,
    /// The services that expose it.
    pub services: Vec<ServiceKind>,
}

/// Returns the rows of the table.
///
/// # Errors
/// Fails if a row cannot be parsed, or a metric is in the table twice.
pub fn documented() -> Result<BTreeMap<String, Metric>> {
    let path = workspace_dir().join("docs/reference/metrics.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut table = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `podward_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, names, services, what, _] = cells[..] else { bail!("not three cells: {row}") };
        let services = services_of(services).with_context(|| format!("understand {row}"))?;
        for name in names.split("`, `").map(|name| name.trim_matches('`')) {
            let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
            let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
            let kind = match name {
                _ if name.ends_with("_total") => "counter",
                _ if name.ends_with("_seconds") && what.contains("histogram") => "histogram",
                _ => "gauge",
            };
            let labels = labels.map(ToOwned::to_owned).collect();
            let metric = Metric { name: name.to_owned(), kind, labels, services: services.clone() };
            ensure!(table.insert(name.to_owned(), metric).is_none(), "{name} is in the table twice");
        }
    }
    ensure!(!table.is_empty(), "no metrics in {}", path.display());
    Ok(table)
}

fn services_of(cell: &str) -> Result<Vec<ServiceKind>> {
    let one = |name: &str| match name {
        "all" => Ok(ServiceKind::ALL.to_vec()),
        "webhooks" => Ok(vec![ServiceKind::MutatingWebhook, ServiceKind::ValidatingWebhook]),
        _ => match ServiceKind::ALL
            .into_iter()
            .chain([ServiceKind::ServiceDiscoveryBridge, ServiceKind::ClonesetController])
            .find(|kind| kind.as_str() == name)
        {
            Some(kind) => Ok(vec![kind]),
            None => bail!("there is no service {name:?}"),
        },
    };
    Ok(cell.split(", ").map(one).collect::<Result<Vec<_>>>()?.concat())
}

/// The metrics of one or more replicas of a service.
#[derive(Debug, Default)]
pub struct ExposedMetrics {
    /// The kind of each metric by its name, including metrics without series.
    pub kinds: BTreeMap<String, String>,
    /// The label names of each series by the metric's name, without `le`.
    pub labels: BTreeMap<String, BTreeSet<BTreeSet<String>>>,
}

impl ExposedMetrics {
    /// Adds the metrics of a replica.
    ///
    /// # Errors
    /// Fails if a line cannot be parsed.
    pub fn add(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            if let Some(told) = line.strip_prefix("# TYPE ") {
                let (name, kind) = told.split_once(' ').with_context(|| format!("understand {line}"))?;
                // The samples of a counter have a suffix that its description does not have.
                let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
                self.kinds.insert(name, kind.to_owned());
            } else if !line.starts_with('#') {
                let (name, labels) = series(line).with_context(|| format!("understand {line}"))?;
                let name =
                    self.metric_of(name).with_context(|| format!("the metric of {line} has no type"))?;
                self.labels.entry(name).or_default().insert(labels);
            }
        }
        Ok(())
    }

    fn metric_of(&self, sample: &str) -> Option<String> {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| sample.strip_suffix(part));
        let is_histogram = |name: &&str| self.kinds.get(*name).is_some_and(|kind| kind == "histogram");
        let name = parts.into_iter().find(is_histogram).unwrap_or(sample);
        self.kinds.contains_key(name).then(|| name.to_owned())
    }
}

/// Returns the name and the label names of a line `name{label="value",...} number`.
fn series(line: &str) -> Option<(&str, BTreeSet<String>)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeSet::new();
    rest = rest.strip_prefix('{').unwrap_or_default();
    while let Some((label, value)) = rest.split_once("=\"") {
        if label != "le" {
            labels.insert(label.to_owned());
        }
        let mut escaped = false;
        let quote = value.find(|letter| {
            let is_end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            is_end
        })?;
        match value[quote + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    Some((name, labels))
}
