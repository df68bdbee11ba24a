//! Measures what Podward adds to a pod's create, update and delete at the API server, with one, two and four replicas
//! of the webhooks.
//!
//! Podward is installed with Helm on a test cluster with a real node, so that the API server calls its webhooks
//! through their Services. The pods find no node, so that only the API server works on them. Pods that are opted in
//! alternate with pods that are not, so that other load on the machine affects both.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};
use podward_support::{Cluster, Installation, await_condition, pods};
use podward_testbed::{Shape, TestCluster};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bare_writes::BareWrites;
use crate::times::Times;
use crate::usage::Usage;

const NAMESPACE: &str = "admission";
/// The number of pods that are not opted in, to which the bare writes go.
const BYSTANDERS: usize = 50;

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The numbers of replicas of each webhook.
    pub replicas: Vec<u32>,
    /// The numbers of concurrent clients.
    pub clients: Vec<usize>,
    /// The number of pods of each kind, for each combination.
    pub pods: usize,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self { profile: "bench-lite".to_owned(), replicas: vec![1, 2, 4], clients: vec![1, 8], pods: 400 }
    }
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdmissionReport {
    /// What the API server allows without Podward.
    pub bare: BareWrites,
    /// The times for each combination.
    pub combinations: Vec<CombinationReport>,
}

/// The result for a number of replicas and of clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CombinationReport {
    /// The number of replicas of each webhook.
    pub replicas: u32,
    /// The number of concurrent clients.
    pub clients: usize,
    /// The times for a pod that is not opted in.
    pub without: RequestTimes,
    /// The times for a pod that is opted in.
    pub with: RequestTimes,
}

/// The times of the requests of a pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestTimes {
    /// A create. The API server calls the mutating and the validating webhook.
    pub create: Times,
    /// A change of a label after all other writes. The API server calls both webhooks.
    pub update: Times,
    /// A delete. The pod was never scheduled, so it is allowed. The API server calls the validating webhook.
    pub delete: Times,
}

/// Starts a test cluster, measures, and ends it. Calls `say` with the progress.
///
/// # Errors
/// Fails if the test cluster or Podward does not start, or a request fails.
pub async fn run(options: &AdmissionOptions, say: impl Fn(&str)) -> Result<AdmissionReport> {
    say("building images of Podward's services");
    let builder =
        Installation::prepare(TestCluster::builder(Shape::Node).name("admission"), &options.profile).await?;
    say("starting a cluster with one real node");
    let test_cluster = Arc::new(builder.start().await?);
    let cluster = Cluster::of_test_cluster(test_cluster.clone());
    say("installing Podward");
    let installation = Installation::install(&cluster, &[]).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    namespaces.create(&PostParams::default(), &namespace).await.context("make the namespace")?;
    say("bare writes");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    for number in 0..BYSTANDERS {
        let pod = pod(&format!("bystander-{number}"), false)?;
        pods.create(&PostParams::default(), &pod).await.context("make a pod")?;
    }
    let api_server = Usage::of_api_server(&test_cluster)?;
    let bare = BareWrites::measure(&cluster.client(), NAMESPACE, "", &api_server).await?;
    let mut combinations = Vec::new();
    for &replicas in &options.replicas {
        let values =
            ["mutating-webhook", "validating-webhook"].map(|kind| format!("{kind}.replicas={replicas}"));
        installation.upgrade(&[&values[0], &values[1]]).await?;
        for &clients in &options.clients {
            say(&format!("{replicas} replicas, {clients} clients"));
            // The first requests open the API server's connections to new replicas.
            measure(&cluster.client(), clients, 8 * clients).await?;
            let (without, with) = measure(&cluster.client(), clients, options.pods).await?;
            combinations.push(CombinationReport { replicas, clients, without, with });
        }
    }
    test_cluster.down().await?;
    Ok(AdmissionReport { bare, combinations })
}

#[derive(Default)]
struct MeasuredTimes {
    create: Vec<f64>,
    update: Vec<f64>,
    delete: Vec<f64>,
}

impl MeasuredTimes {
    fn add(&mut self, other: MeasuredTimes) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }

    fn requests(self) -> RequestTimes {
        let MeasuredTimes { create, update, delete } = self;
        RequestTimes { create: Times::of(create), update: Times::of(update), delete: Times::of(delete) }
    }
}

/// Measures `count` pods that are not opted in, and as many that are.
async fn measure(client: &Client, clients: usize, count: usize) -> Result<(RequestTimes, RequestTimes)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let one_client = async |number: usize| {
        let (mut without, mut with) = (MeasuredTimes::default(), MeasuredTimes::default());
        for turn in 0..count.div_ceil(clients) {
            let name = |sort: &str| format!("{sort}-{number}-{turn}");
            one_pod(&pods, &name("without"), false, &mut without).await?;
            one_pod(&pods, &name("with"), true, &mut with).await?;
        }
        anyhow::Ok((without, with))
    };
    let (mut without, mut with) = (MeasuredTimes::default(), MeasuredTimes::default());
    for (one, other) in try_join_all((0..clients).map(one_client)).await? {
        without.add(one);
        with.add(other);
    }
    Ok((without.requests(), with.requests()))
}

/// Returns a pod that finds no node.
fn pod(name: &str, opted_in: bool) -> Result<Pod> {
    let mut spec = pods::server_spec("podward.local/none:1");
    spec["nodeSelector"] = json!({"example.com/there-is": "none"});
    let mut pod = json!({"metadata": {"name": name, "labels": {"app": "none"}}, "spec": spec});
    if opted_in {
        pod["metadata"]["labels"][CONTROL_LABEL] = json!(CONTROL_VALUE);
    }
    serde_json::from_value(pod).context("describe a pod")
}

async fn one_pod(pods: &Api<Pod>, name: &str, opted_in: bool, taken: &mut MeasuredTimes) -> Result<()> {
    let pod = pod(name, opted_in)?;
    let begun = Instant::now();
    pods.create(&PostParams::default(), &pod).await.with_context(|| format!("make pod {name}"))?;
    taken.create.push(milliseconds(begun));
    // A concurrent write makes the API server apply a patch again and call all webhooks again.
    let expected = &["PodScheduled", SERVICE_READY_GATE][..if opted_in { 2 } else { 1 }];
    let is_left_alone = |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        expected.iter().all(|type_| conditions.iter().any(|condition| condition.type_ == *type_))
    };
    await_condition(pods.clone(), name, is_left_alone).await.with_context(|| format!("watch pod {name}"))?;
    // The watch has taken the connection. The change does not pay for a new one.
    pods.get(name).await.with_context(|| format!("read pod {name}"))?;
    let change = json!({"metadata": {"labels": {"example.com/touched": "yes"}}});
    let begun = Instant::now();
    let changed = pods.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    taken.update.push(milliseconds(begun));
    changed.with_context(|| format!("change pod {name}"))?;
    let begun = Instant::now();
    let deleted = pods.delete(name, &DeleteParams::default()).await;
    taken.delete.push(milliseconds(begun));
    deleted.map(drop).with_context(|| format!("delete pod {name}"))
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}
