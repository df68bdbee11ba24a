//! The clients of the demo's Service.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use demo_client::{ClientReport, Connections, LoadReport, LoadSecond, RegistryKind};
use futures::future::try_join_all;
use serde::Serialize;

use super::workload::NodePorts;
use crate::{Cluster, LoadClient, LoadClientOptions, LoadTargets};

/// The way of requests to the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemoClients {
    /// Clients on the nodes use the cluster address of the Service.
    InCluster,
    /// Clients on each node use the node ports of the other nodes, as a load balancer does: in turn, and only those of
    /// nodes whose health check succeeds. The external traffic policy is Local.
    LoadBalancer,
    /// Clients use the instances that a registry shows, and no Service.
    Registry(RegistryKind),
}

impl fmt::Display for DemoClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InCluster => "in-cluster",
            Self::LoadBalancer => "load-balancer",
            Self::Registry(kind) => kind.as_str(),
        })
    }
}

/// The options of the clients of an act.
pub(super) struct ClientOptions {
    /// The path of the load client.
    pub(super) program: PathBuf,
    /// The image that contains it.
    pub(super) image: String,
    /// The path of the requests.
    pub(super) path: &'static str,
    pub(super) connections: Vec<Connections>,
    /// The request rate per second, of all clients together, for each kind of connection.
    pub(super) rate: u32,
}

/// Running clients.
pub(super) struct RunningClients(Vec<(DemoClients, LoadClient)>);

impl RunningClients {
    /// Starts the clients. On a cluster with one node it is one client of the cluster address. On a cluster with
    /// several nodes there is one on each node, and one of the node ports if there are some; they share the rate.
    pub(super) async fn start(
        cluster: &Cluster,
        options: &ClientOptions,
        address: SocketAddr,
        node_ports: Option<NodePorts>,
    ) -> Result<Self> {
        let described = describe(cluster, options, address, node_ports);
        let starting = described.into_iter().map(async |(kind, options)| {
            let node = options.node.clone().unwrap_or_default();
            let started = LoadClient::start(cluster, options).await;
            anyhow::Ok((kind, started.with_context(|| format!("start {kind} clients {node}"))?))
        });
        try_join_all(starting).await.map(Self)
    }

    /// Stops all clients, and returns the results of each kind of clients and connections.
    pub(super) async fn stop(self) -> Result<Vec<(DemoClients, LoadReport)>> {
        let stopping = self.0.into_iter().map(async |(kind, load)| anyhow::Ok((kind, load.stop().await?)));
        try_join_all(stopping).await.map(merge)
    }
}

fn describe(
    cluster: &Cluster,
    options: &ClientOptions,
    address: SocketAddr,
    node_ports: Option<NodePorts>,
) -> Vec<(DemoClients, LoadClientOptions)> {
    let nodes: Vec<_> = cluster.test_cluster().map(|cluster| cluster.nodes()).unwrap_or_default();
    let of = |targets, node, clients: usize| LoadClientOptions {
        timeout: LoadClientOptions::USUAL_TIMEOUT,
        program: options.program.clone(),
        image: options.image.clone(),
        targets,
        node,
        path: options.path.to_owned(),
        connections: options.connections.clone(),
        rate: (options.rate / u32::try_from(clients).unwrap_or(u32::MAX)).max(1),
    };
    if nodes.len() < 2 {
        return vec![(DemoClients::InCluster, of(LoadTargets::Service(address), None, 1))];
    }
    let clients = nodes.len() * if node_ports.is_some() { 2 } else { 1 };
    let mut all = Vec::new();
    for node in &nodes {
        all.push((DemoClients::InCluster, of(LoadTargets::Service(address), Some(node.name()), clients)));
        // To a connection from a node to itself, kube-proxy does not apply the policy Local.
        let others = nodes.iter().filter(|other| other.name() != node.name());
        if let Some(ports) = node_ports {
            let addresses = others.map(|other| SocketAddr::new(other.ip(), ports.port)).collect();
            let targets = LoadTargets::Balanced { addresses, health_port: ports.health };
            let client = of(targets, Some(node.name()), clients);
            all.push((DemoClients::LoadBalancer, client));
        }
    }
    all
}

/// Adds up the results of the clients of a kind, for each kind of connections.
fn merge(reports: Vec<(DemoClients, ClientReport)>) -> Vec<(DemoClients, LoadReport)> {
    let mut merged: BTreeMap<(DemoClients, Connections), LoadReport> = BTreeMap::new();
    for (kind, report) in reports {
        for load in report.loads {
            let key = (kind, load.connections);
            let sum = match merged.remove(&key) {
                Some(sum) => add(sum, load),
                None => load,
            };
            merged.insert(key, sum);
        }
    }
    merged.into_iter().map(|((kind, _), load)| (kind, load)).collect()
}

fn add(mut sum: LoadReport, load: LoadReport) -> LoadReport {
    sum.requests += load.requests;
    sum.failed += load.failed;
    sum.sent_again += load.sent_again;
    sum.opened += load.opened;
    for (reason, count) in load.reasons {
        *sum.reasons.entry(reason).or_default() += count;
    }
    sum.failures.extend(load.failures);
    if sum.series.len() < load.series.len() {
        sum.series.resize(load.series.len(), LoadSecond::default());
    }
    for (address, count) in load.answered_by {
        *sum.answered_by.entry(address).or_default() += count;
    }
    for (second, other) in sum.series.iter_mut().zip(load.series) {
        second.requests += other.requests;
        second.failed += other.failed;
    }
    // The worst of them: their distributions are not known here.
    sum.seconds = sum.seconds.max(load.seconds);
    sum.longest_pause_ms = sum.longest_pause_ms.max(load.longest_pause_ms);
    sum.median_ms = sum.median_ms.max(load.median_ms);
    sum.p99_ms = sum.p99_ms.max(load.p99_ms);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(connections: Connections, requests: u64, failed: u64, pause: f64) -> ClientReport {
        let reasons = (failed > 0).then(|| ("reset".to_owned(), failed)).into_iter().collect();
        let load = LoadReport {
            connections,
            seconds: 1.0,
            requests,
            failed,
            reasons,
            failures: Vec::new(),
            sent_again: 0,
            opened: requests,
            longest_pause_ms: pause,
            median_ms: 1.0,
            p99_ms: 2.0,
            series: vec![LoadSecond { requests, failed }],
            answered_by: BTreeMap::new(),
            discovery: None,
        };
        ClientReport { loads: vec![load] }
    }

    #[test]
    fn no_failure_of_any_client_is_left_out() {
        let merged = merge(vec![
            (DemoClients::InCluster, report(Connections::New, 10, 0, 5.0)),
            (DemoClients::LoadBalancer, report(Connections::New, 10, 4, 7.0)),
            (DemoClients::InCluster, report(Connections::New, 20, 3, 2.0)),
            (DemoClients::InCluster, report(Connections::KeepAlive, 30, 0, 1.0)),
        ]);
        let counted: Vec<_> =
            merged.iter().map(|(kind, load)| (*kind, load.connections, load.requests, load.failed)).collect();
        assert_eq!(
            counted,
            [
                (DemoClients::InCluster, Connections::New, 30, 3),
                (DemoClients::InCluster, Connections::KeepAlive, 30, 0),
                (DemoClients::LoadBalancer, Connections::New, 10, 4),
            ]
        );
        let first = &merged[0].1;
        assert_eq!((first.reasons["reset"], first.series[0].failed), (3, 3));
        assert!((first.longest_pause_ms - 5.0).abs() < f64::EPSILON);
    }
}
