//! Clusters with two API servers, of which the second can lag.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Pod},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use libtest_mimic::Trial;
use podward_testbed::{Shape, TestCluster, TestClusterError};
use serde_json::json;

use crate::harness::{test, test_as_root};
use crate::support::{builder, condition, eventually, pod, start};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("api_servers::watches_of_the_second_one_lag", watches_of_the_second_one_lag),
        test_as_root("api_servers::a_node_uses_the_lagging_one", a_node_uses_the_lagging_one),
        test("api_servers::one_server_has_no_lag", one_server_has_no_lag),
    ]
}

/// Longer than a change takes to be seen on a busy machine.
const LAG: Duration = Duration::from_secs(2);
/// As good as never.
const FOR_EVER: Duration = Duration::from_secs(3600);

type Changes = BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>;

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn watch(client: Client, since: &str) -> Changes {
    let parameters = WatchParams::default().fields("metadata.name=seen").disable_bookmarks();
    maps(client).watch(&parameters, since).await.unwrap().boxed()
}

async fn write(cluster: &TestCluster, value: &str) -> Instant {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}, "data": {"value": value}});
    let parameters = PatchParams::apply("test").force();
    maps(cluster.client()).patch("seen", &parameters, &Patch::Apply(&map)).await.unwrap();
    Instant::now()
}

/// Returns the value that the next event has.
async fn next(changes: &mut Changes) -> String {
    let event = tokio::time::timeout(Duration::from_secs(30), changes.try_next()).await.unwrap();
    match event.unwrap().unwrap() {
        WatchEvent::Added(map) | WatchEvent::Modified(map) => map.data.unwrap()["value"].clone(),
        other => panic!("{other:?}"),
    }
}

async fn watches_of_the_second_one_lag() {
    let cluster = start(builder(Shape::ControlPlane, "lag").api_servers(2)).await;
    let second = cluster.second_client().await.unwrap();
    both_servers_are_endpoints(&cluster).await;

    let since =
        maps(second.clone()).list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut at_first = watch(cluster.client(), &since).await;
    let mut at_second = watch(second.clone(), &since).await;
    write(&cluster, "in time").await;
    assert_eq!(next(&mut at_second).await, "in time", "without lag");
    assert_eq!(next(&mut at_first).await, "in time");

    cluster.lag_watches(LAG).await.unwrap();
    let written = write(&cluster, "late").await;
    assert_eq!(next(&mut at_first).await, "late");
    assert!(written.elapsed() < LAG, "the first server does not lag");
    assert_eq!(next(&mut at_second).await, "late");
    let waited = written.elapsed();
    // The event may have arrived a moment before the response to the write.
    assert!(waited > LAG - Duration::from_millis(500), "{waited:?}");

    cluster.lag_watches(FOR_EVER).await.unwrap();
    write(&cluster, "caught up").await;
    assert_eq!(next(&mut at_first).await, "caught up");
    // What is not a watch does not lag, and is served by the second API server with the rights of the client.
    let read = maps(second).get("seen").await.unwrap();
    assert_eq!(read.data.unwrap()["value"], "caught up");
    // Another process may set the lag.
    TestCluster::attach(cluster.id()).await.unwrap().lag_watches(Duration::ZERO).await.unwrap();
    assert_eq!(next(&mut at_second).await, "caught up");
    cluster.down().await.unwrap();
}

async fn both_servers_are_endpoints(cluster: &TestCluster) {
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client());
    let addresses = async || {
        let slice = slices.get_opt("kubernetes").await.unwrap();
        let endpoints = slice.map(|slice| slice.endpoints).into_iter().flatten();
        let mut addresses: Vec<String> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
        addresses.sort();
        addresses
    };
    eventually("both are endpoints", addresses, |found| *found == ["10.200.0.1", "10.200.0.101"]).await;
}

/// Node2 learns of its pod from the second API server, and the first node does not lag.
async fn a_node_uses_the_lagging_one() {
    let described = builder(Shape::Node, "lagging").nodes(2).api_servers(2).second_api_server("node2");
    let cluster = start(described).await;
    cluster.lag_watches(FOR_EVER).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for node in ["node1", "node2"] {
        let sleeps = json!({
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "pause",
                "image": "podward.local/pause:1",
                "imagePullPolicy": "Never",
            }],
        });
        pods.create(&PostParams::default(), &pod(node, sleeps)).await.unwrap();
    }
    let get = async |name: &'static str| pods.get(name).await.unwrap();
    let ready = |pod: &Pod| condition(pod, "Ready") == Some("True");
    eventually("node1 runs its pod", async || get("node1").await, ready).await;
    let unseen = get("node2").await;
    assert!(
        unseen.status.unwrap().container_statuses.is_none(),
        "the kubelet of node2 does not know of its pod"
    );
    cluster.lag_watches(Duration::ZERO).await.unwrap();
    let seen = eventually("node2 runs its pod", async || get("node2").await, ready).await;
    assert_eq!(seen.name_any(), "node2");
    cluster.down().await.unwrap();
}

async fn one_server_has_no_lag() {
    let alone = builder(Shape::Node, "alone").second_api_server("node1").start().await;
    let Err(TestClusterError::Unsupported(message)) = alone else { panic!("started, or failed otherwise") };
    assert!(message.contains("api_servers(2)"), "{message}");
    let three = builder(Shape::ControlPlane, "three").api_servers(3).start().await;
    let Err(TestClusterError::Unsupported(message)) = three else { panic!("started, or failed otherwise") };
    assert!(message.contains("1 or 2 API servers"), "{message}");
}
