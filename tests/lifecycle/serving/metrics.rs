//! Compares the table of metrics in docs/reference/metrics.md with the metrics that services expose. The dashboard
//! and the alerts are checked against the table.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube::{ResourceExt, api::DeleteParams};
use podward_e2e::{
    Fixture, Test,
    metrics::{ExposedMetrics, Metric, documented},
};
use podward_support::{Installation, ServiceKind, WAIT, within};

use super::{
    feature_tour::rule,
    service_fixture::{in_service, of_app, operate, serve, until_gone},
};

/// The metrics without series, which are not exposed, while nothing fails and no traces are exported.
const OF_TROUBLE: [&str; 19] = [
    "podward_trace_spans_sent_total",
    "podward_trace_spans_dropped_total",
    "podward_errors_total",
    "podward_consumer_timeouts_total",
    "podward_hook_answers_ignored_total",
    "podward_hook_overdue_questions",
    "podward_hook_rejected",
    "podward_request_deletion_failures_total",
    "podward_admission_undecided_total",
    "podward_admission_warnings_total",
    "podward_watch_failures_total",
    "podward_traffic_scrape_failures_total",
    "podward_delete_wait_seconds",
    "podward_busy_overruns_total",
    // Only for writes that need a right of their own.
    "podward_privileged_writes_total",
    "podward_results_refused_total",
    // Only while pods wait, and only for rules with webhooks.
    "podward_rule_waiting_since_timestamp_seconds",
    "podward_rule_webhook_calls_total",
    "podward_rule_webhook_call_seconds",
];

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::serving("every_metric_is_as_documented", every_metric_is_as_documented)]
}

async fn every_metric_is_as_documented(fixture: Arc<Fixture>) -> Result<()> {
    serve(&fixture, "web", of_app("web")).await?;
    in_service(&fixture, "web", ["web"]).await?;
    rule(&fixture).await?;
    operate(&fixture, "web").await?;
    // The first delete is rejected, and recorded as a deletion request.
    let refused = fixture.api().delete("web", &DeleteParams::default()).await;
    ensure!(refused.is_err(), "the delete was not held");
    until_gone(&fixture, "web").await?;

    let table = documented()?;
    for kind in ServiceKind::ALL {
        let told: BTreeMap<&str, &Metric> = table
            .values()
            .filter(|metric| metric.services.contains(&kind))
            .map(|metric| (metric.name.as_str(), metric))
            .collect();
        let missing = Mutex::new(String::new());
        let shown = async {
            loop {
                let exposed = exposed(&fixture, kind).await?;
                let found = missing_of(kind, &told, &exposed)?;
                if found.is_empty() {
                    return Ok(());
                }
                if let Ok(mut missing) = missing.lock() {
                    *missing = found.join(", ");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(WAIT, || format!("series of {kind}: {missing:?}"), shown).await?;
    }
    Ok(())
}

/// Returns the metrics of all replicas. Only the leader of the lifecycle-controllers has some of them.
async fn exposed(fixture: &Fixture, kind: ServiceKind) -> Result<ExposedMetrics> {
    let mut exposed = ExposedMetrics::default();
    let installation = fixture.installation()?;
    for pod in installation.pods(kind).await? {
        let name = pod.name_any();
        let path = format!("/api/v1/namespaces/{}/pods/{name}:8080/proxy/metrics", Installation::NAMESPACE);
        let text = installation.kubectl(&["get", "--raw", &path]).await?;
        exposed.add(&text).with_context(|| format!("the metrics of {name}"))?;
    }
    Ok(exposed)
}

/// Returns the documented metrics that are not exposed although nothing fails. Those that are exposed must match the
/// documentation.
fn missing_of<'t>(
    kind: ServiceKind,
    told: &BTreeMap<&'t str, &Metric>,
    exposed: &ExposedMetrics,
) -> Result<Vec<&'t str>> {
    for (name, is) in &exposed.kinds {
        let says = told.get(name.as_str()).map(|metric| metric.kind);
        ensure!(
            says == Some(is),
            "{kind} exposes the {is} {name}, and the table in docs/reference/metrics.md says {says:?}"
        );
    }
    for (name, series) in &exposed.labels {
        let labels: BTreeSet<_> = [told[name.as_str()].labels.clone()].into();
        ensure!(
            *series == labels,
            "{name} of {kind} has the labels {series:?}, and the table says {labels:?}"
        );
    }
    let is_shown = |name: &&str| exposed.labels.contains_key(*name) || OF_TROUBLE.contains(name);
    Ok(told.keys().copied().filter(|name| !is_shown(name)).collect())
}
