//! The metrics of the watches of a leader.

use prometheus_client::registry::Registry;

use podward_support::{eventually, metrics_text};

use super::api_server::ApiServer;
use super::{Running, TIMEOUT, pod};

#[tokio::test]
async fn the_watches_of_a_leader_are_in_the_metrics_while_it_leads() {
    let server = ApiServer::new();
    server.forbid("services");
    server.put(pod("web-0"));
    let leader = Running::start(&server);
    let mut registry = Registry::with_prefix("podward");
    leader.metrics.register(&mut registry);
    let line =
        |name: &str, watch: &str, value: i64| format!("podward_watch_{name}{{watch=\"{watch}\"}} {value}\n");
    let mut lines = vec![line("failing", "services", 1), line("objects", "pods", 1)];
    for watch in ["pods", "lifecyclehooks", "namespaces", "podtransitionrules", "nodes"] {
        lines.push(line("failing", watch, 0));
    }
    let text = || metrics_text(&registry);
    eventually(TIMEOUT, text, || lines.iter().all(|line| text().contains(line))).await.unwrap();
    leader.stop().await;
    eventually(TIMEOUT, text, || !text().contains("podward_watch_failing{")).await.unwrap();
}
