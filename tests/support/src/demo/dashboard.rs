//! The chart's dashboard, drawn from what Prometheus has recorded during the demo.

mod panels;
mod svg;

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use hyper::StatusCode;
use jiff::Timestamp;
use podward_testbed::TestCluster;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::{
    panels::{Dashboard, Panel},
    svg::{Series, svg},
};
use crate::{
    Cluster, Installation, ask,
    cluster::{ServiceCommand, ServiceProcess},
    wait::{WAIT, within},
};

/// The file with the dashboard.
const FILE: &str = "dashboard.svg";
/// The row of the dashboard that is the first one not drawn: all rows are a picture of many pages.
const END_ROW: &str = "Hooks";
const SCRAPE_INTERVAL: &str = "2s";
/// The interval of rates: a few scrapes.
const RATE_INTERVAL: &str = "10s";
/// The distance of two points of a line.
const STEP: &str = "2";
/// The port of the services' metrics.
const ADMIN_PORT: u16 = 8080;
const POLL: Duration = Duration::from_millis(100);
const MOST_QUERIES: usize = 4;

/// A Prometheus that records the metrics of Podward's services. It ends when this is dropped.
pub(super) struct MetricsRecorder {
    _process: ServiceProcess,
    _dir: TempDir,
    at: SocketAddr,
    begin: Timestamp,
}

impl MetricsRecorder {
    /// Starts Prometheus in the network of the cluster, and waits until it answers.
    ///
    /// # Errors
    /// Fails if Prometheus is not built or does not answer.
    pub(super) async fn start(cluster: &Cluster, test_cluster: &TestCluster) -> Result<Self> {
        let dir = tempfile::tempdir().context("make a folder for Prometheus")?;
        let file = dir.path().join("prometheus.yaml");
        // JSON is YAML.
        let config = config(&test_cluster.inner_kubeconfig()).to_string();
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        let at = cluster.free_address().await?;
        let command = ServiceCommand {
            name: "prometheus".to_owned(),
            program: test_cluster.tools().bin("prometheus"),
            args: vec![
                format!("--config.file={}", file.display()),
                format!("--storage.tsdb.path={}", dir.path().join("data").display()),
                format!("--web.listen-address={at}"),
                "--log.level=warn".to_owned(),
            ],
        };
        let process = cluster.spawn(command).await?;
        let recorder = Self { _process: process, _dir: dir, at, begin: Timestamp::now() };
        let ready = async {
            while !ask::get(cluster, at, "/-/ready").await.is_ok_and(|(status, _)| status == StatusCode::OK) {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        within(WAIT, || "Prometheus".to_owned(), ready).await?;
        Ok(recorder)
    }

    /// Draws the dashboard of the time since the start into the folder `dir`.
    ///
    /// # Errors
    /// Fails if a query fails, no service was read, or the file cannot be written.
    pub(super) async fn draw(&self, cluster: &Cluster, dir: &Path) -> Result<()> {
        let range = (seconds(self.begin), seconds(Timestamp::now()));
        let services = self.query(cluster, "count(up == 1)", range).await?;
        ensure!(!services.is_empty(), "Prometheus has read no service");
        let dashboard = Dashboard::until_row(END_ROW)?;
        let panels = stream::iter(&dashboard.panels)
            .map(async |panel| anyhow::Ok((panel, self.series_of(cluster, panel, range).await?)));
        let panels: Vec<_> = panels.buffered(MOST_QUERIES).try_collect().await?;
        let file = dir.join(FILE);
        std::fs::write(&file, svg(&dashboard, &panels, range))
            .with_context(|| format!("write {}", file.display()))
    }

    async fn series_of(&self, cluster: &Cluster, panel: &Panel, range: (f64, f64)) -> Result<Vec<Series>> {
        let mut all = Vec::new();
        for target in &panel.targets {
            let found = self.query(cluster, &target.query(RATE_INTERVAL), range).await;
            let found = found.with_context(|| format!("read the panel {}", panel.title))?;
            all.extend(found.into_iter().map(|found| found.into_series(&target.legend_format)));
        }
        Ok(all)
    }

    async fn query(
        &self,
        cluster: &Cluster,
        query: &str,
        (start, end): (f64, f64),
    ) -> Result<Vec<FoundSeries>> {
        let parameters = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", query)
            .append_pair("start", &start.to_string())
            .append_pair("end", &end.to_string())
            .append_pair("step", STEP)
            .finish();
        let (status, text) = ask::get(cluster, self.at, &format!("/api/v1/query_range?{parameters}")).await?;
        ensure!(status == StatusCode::OK, "Prometheus answers {status} to {query}: {text}");
        let answer: Answer = serde_json::from_str(&text).with_context(|| format!("understand {text}"))?;
        Ok(answer.data.result)
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1e3
}

/// The configuration of Prometheus: pods are found and named as by a PodMonitor.
fn config(kubeconfig: &Path) -> Value {
    let label = |source: &str, target: &str| json!({"source_labels": [source], "target_label": target});
    json!({
        "global": {"scrape_interval": SCRAPE_INTERVAL, "scrape_timeout": SCRAPE_INTERVAL},
        "scrape_configs": [{
            "job_name": "podward",
            "kubernetes_sd_configs": [{
                "role": "pod", "kubeconfig_file": kubeconfig, "namespaces": {"names": [Installation::NAMESPACE]},
            }],
            "relabel_configs": [
                {
                    "source_labels": [
                        "__meta_kubernetes_pod_label_app_kubernetes_io_part_of",
                        "__meta_kubernetes_pod_container_port_name",
                    ],
                    "regex": "podward;admin", "action": "keep",
                },
                {
                    "source_labels": ["__meta_kubernetes_pod_ip"], "target_label": "__address__",
                    "replacement": format!("$1:{ADMIN_PORT}"),
                },
                label("__meta_kubernetes_namespace", "namespace"),
                label("__meta_kubernetes_pod_label_app_kubernetes_io_name", "job"),
                label("__meta_kubernetes_pod_name", "pod"),
            ],
        }],
    })
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: AnswerData,
}

#[derive(Debug, Deserialize)]
struct AnswerData {
    result: Vec<FoundSeries>,
}

#[derive(Debug, Deserialize)]
struct FoundSeries {
    metric: Value,
    values: Vec<(f64, String)>,
}

impl FoundSeries {
    /// `legend` is a text with `{{label}}` for values of labels.
    fn into_series(self, legend: &str) -> Series {
        let labels = self.metric.as_object().into_iter().flatten();
        let name = labels.fold(legend.to_owned(), |name, (label, value)| {
            name.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap_or_default())
        });
        let points = self.values.into_iter().map(|(at, value)| (at, value.parse().unwrap_or(f64::NAN)));
        Series { name, points: points.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_named_by_their_legend() {
        let text = r#"{"status": "success", "data": {"resultType": "matrix", "result": [
            {"metric": {"kind": "delete", "outcome": "done"}, "values": [[1.5, "2"], [3, "NaN"]]}
        ]}}"#;
        let answer: Answer = serde_json::from_str(text).unwrap();
        let series = answer.data.result.into_iter().next().unwrap().into_series("{{kind}} {{outcome}}");
        assert_eq!(series.name, "delete done");
        assert!(series.points[0] == (1.5, 2.0) && series.points[1].1.is_nan());
    }
}
