//! A Deployment on some of the nodes, with a Service and clients.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use demo_client::Connections;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, ResourceExt, api::PostParams};
use podward_core::keys;
use podward_e2e::Fixture;
use podward_images::DemoImages;
use podward_support::{LoadClient, LoadClientOptions, LoadTargets, await_condition, pods, within};
use serde_json::json;

/// A low request rate. No request may be lost.
const RATE: u32 = 50;
/// The time that a condition may take which depends on the detection of a lost node (20 s), on the wait for its
/// kube-proxy (30 s), and on taints.
pub(crate) const LONG: Duration = Duration::from_secs(100);

/// Waits until `node` is without taints and not cordoned.
async fn until_open(fixture: &Fixture, node: &str) -> Result<()> {
    let is_open = |node: Option<&Node>| {
        let spec = node.and_then(|node| node.spec.as_ref());
        spec.is_some_and(|spec| {
            spec.taints.as_ref().is_none_or(Vec::is_empty) && spec.unschedulable != Some(true)
        })
    };
    let nodes: Api<Node> = Api::all(fixture.client());
    let waited = await_condition(nodes, node, is_open);
    within(LONG, || format!("node {node} without taints"), waited).await.map(drop)
}

/// A Deployment on some of the nodes, and its Service.
pub(crate) struct SpreadWorkload<'f> {
    fixture: &'f Fixture,
    name: &'static str,
    replicas: usize,
    address: SocketAddr,
}

impl<'f> SpreadWorkload<'f> {
    /// Creates a Deployment with `replicas` pods, spread over `nodes`, a Service and a disruption budget of one pod, when
    /// all `nodes` accept pods: the test before may have stopped one. Waits until all pods are in service.
    pub(crate) async fn make(
        fixture: &'f Fixture,
        name: &'static str,
        nodes: &[&str],
        replicas: usize,
    ) -> Result<Self> {
        for node in nodes {
            until_open(fixture, node).await?;
        }
        let labels = json!({"app": name, keys::CONTROL_LABEL: keys::CONTROL_VALUE});
        let mut spec = pods::server_spec(&fixture.images().v1);
        let on_nodes = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": nodes});
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [on_nodes]}],
        }}});
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": name}},
        }]);
        // Without a request, a pod gets almost no CPU time while the machine is busy, and loses requests for that reason.
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": "50m"}});
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }))?;
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        }))?;
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
        }))?;
        let (client, namespace) = (fixture.client(), fixture.namespace());
        let params = PostParams::default();
        let made = Api::<Service>::namespaced(client.clone(), namespace).create(&params, &service).await;
        let address = made.context("create the Service")?.spec.and_then(|spec| spec.cluster_ip);
        let address = address.context("the Service has no address")?.parse().context("read the address")?;
        Api::namespaced(client.clone(), namespace)
            .create(&params, &budget)
            .await
            .context("create the budget")?;
        Api::namespaced(client, namespace)
            .create(&params, &deployment)
            .await
            .context("create the Deployment")?;
        let workload = Self { fixture, name, replicas, address: SocketAddr::new(address, 80) };
        workload.until_serving().await?;
        Ok(workload)
    }

    /// Waits until exactly the wanted number of pods exist, and all are in service.
    pub(crate) async fn until_serving(&self) -> Result<Vec<Arc<Pod>>> {
        let all_serve = |pods: &[&Pod]| {
            let mine: Vec<_> = pods.iter().filter(|pod| self.is_mine(pod)).collect();
            mine.len() == self.replicas && mine.iter().all(|pod| serves(pod))
        };
        let what = format!("{} has {} pods in service, and no others", self.name, self.replicas);
        let pods = self.fixture.feed().until_pods_within(LONG, &what, all_serve).await?;
        Ok(pods.into_iter().filter(|pod| self.is_mine(pod)).collect())
    }

    /// Waits until a pod leaves service to be deleted.
    pub(crate) async fn until_leaving(&self) -> Result<()> {
        let leaves = |pod: &&&Pod| {
            self.is_mine(pod)
                && pods::condition(pod, keys::SERVICE_READY_GATE)
                    == Some(podward_core::ConditionStatus::False)
                && pods::has_label(pod, keys::TO_DELETE)
        };
        let some = |pods: &[&Pod]| pods.iter().any(|pod| leaves(&pod));
        self.fixture
            .feed()
            .until_pods(&format!("a pod of {} leaves service", self.name), some)
            .await
            .map(drop)
    }

    pub(crate) fn is_mine(&self, pod: &Pod) -> bool {
        pod.labels().get("app").is_some_and(|app| app == self.name)
    }

    /// Starts clients on the first node that open a connection through the Service for each request.
    pub(crate) async fn clients(&self) -> Result<LoadClient> {
        let options = LoadClientOptions {
            timeout: LoadClientOptions::PATIENT,
            program: DemoImages::client("dev").await?,
            image: self.fixture.images().v1.clone(),
            targets: LoadTargets::Service(self.address),
            node: None,
            path: "/slow?ms=5".to_owned(),
            connections: vec![Connections::New],
            rate: RATE,
        };
        LoadClient::start(self.fixture.cluster(), options).await
    }
}

/// Returns whether the pod is in service, and is to stay.
fn serves(pod: &Pod) -> bool {
    pods::is_available(pod)
        && pods::is_ready(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && !pods::has_label(pod, keys::TO_DELETE)
}

/// Stops the clients. They must not have lost a request.
pub(crate) async fn lost_nothing(clients: LoadClient) -> Result<()> {
    for load in clients.stop().await?.loads {
        let (failed, requests, reasons) = (load.failed, load.requests, &load.reasons);
        ensure!(failed == 0 && requests > 0, "lost {failed} of {requests} requests: {reasons:?}");
    }
    Ok(())
}
