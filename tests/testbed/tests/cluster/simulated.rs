use std::time::{Duration, Instant};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use libtest_mimic::Trial;
use podward_testbed::{Shape, TestCluster};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::harness::test;
use crate::support::{builder, condition, eventually, pod, start};

const GATE: &str = "example.com/gate";

/// The cluster that all of these tests share.
static SHARED: OnceCell<TestCluster> = OnceCell::const_new();

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("simulated::every_node_is_registered", async || every_node_is_registered(client().await).await),
        test("simulated::gates_decide_ready", async || gates_decide_ready(client().await).await),
        test("simulated::images_change_in_place", async || images_change_in_place(client().await).await),
        test("simulated::deletion_is_graceful", async || deletion_is_graceful(client().await).await),
        test("simulated::starts_can_be_delayed", async || starts_can_be_delayed(client().await).await),
        test("simulated::many_pods_come_and_go", async || many_pods_come_and_go(client().await).await),
    ]
}

async fn client() -> Client {
    let start = || start(builder(Shape::Simulated, "simulated").simulated_nodes(2));
    SHARED.get_or_init(start).await.client()
}

/// Takes down the shared cluster, if a test has started it.
pub(crate) async fn end() {
    if let Some(cluster) = SHARED.get() {
        cluster.down().await.unwrap();
    }
}

async fn every_node_is_registered(client: Client) {
    let nodes: Api<Node> = Api::all(client);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

fn containers(images: &[(&str, &str)]) -> Value {
    images.iter().map(|(name, image)| json!({"name": name, "image": image})).collect()
}

async fn create(client: &Client, pod: Pod) -> Api<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    pods
}

async fn set_gate(pods: &Api<Pod>, name: &str, status: &str) {
    let patch = json!({"status": {"conditions": [{"type": GATE, "status": status}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

async fn gates_decide_ready(client: Client) {
    let spec =
        json!({"containers": containers(&[("main", "a:1")]), "readinessGates": [{"conditionType": GATE}]});
    let pods = create(&client, pod("gated", spec)).await;
    let get = async || pods.get("gated").await.unwrap();
    let started =
        eventually("containers are ready", get, |pod| condition(pod, "ContainersReady") == Some("True"))
            .await;
    assert_eq!(condition(&started, "Ready"), Some("False"));
    assert_eq!(condition(&started, GATE), None, "only the gate's owner writes its condition");
    assert!(started.status.as_ref().unwrap().pod_ip.is_some());

    for _ in 0..3 {
        set_gate(&pods, "gated", "False").await;
        let pod = eventually("ready is lost", get, |pod| condition(pod, "Ready") == Some("False")).await;
        assert_eq!(condition(&pod, GATE), Some("False"));
        set_gate(&pods, "gated", "True").await;
        let pod = eventually("ready comes", get, |pod| condition(pod, "Ready") == Some("True")).await;
        assert_eq!((condition(&pod, GATE), condition(&pod, "ContainersReady")), (Some("True"), Some("True")));
    }
}

async fn images_change_in_place(client: Client) {
    let spec = json!({"containers": containers(&[("main", "a:1"), ("side", "b:1")])});
    let pods = create(&client, pod("image", spec)).await;
    let get = async || pods.get("image").await.unwrap();
    let old = eventually("the pod is ready", get, |pod| condition(pod, "Ready") == Some("True")).await;
    let patch = json!({"spec": {"containers": containers(&[("main", "a:2")])}});
    pods.patch("image", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let statuses = |pod: &Pod| pod.status.clone().unwrap().container_statuses.unwrap();
    let new = eventually("the image changes", get, |pod| statuses(pod)[0].image == "a:2").await;
    let (before, after) = (statuses(&old), statuses(&new));
    assert_ne!(before[0].image_id, after[0].image_id);
    assert_ne!(before[0].container_id, after[0].container_id);
    assert_eq!((after[0].restart_count, after[0].ready), (1, true));
    assert_eq!(after[1], before[1], "the other container is left alone");
    assert_eq!(old.status.unwrap().pod_ip, new.status.as_ref().unwrap().pod_ip);

    // The image id follows the image: back to the first one.
    let patch = json!({"spec": {"containers": containers(&[("main", "a:1")])}});
    pods.patch("image", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let back = eventually("the image changes back", get, |pod| statuses(pod)[0].restart_count == 2).await;
    assert_eq!(statuses(&back)[0].image_id, before[0].image_id);
    assert_eq!(condition(&back, "Ready"), Some("True"));
}

async fn deletion_is_graceful(client: Client) {
    let spec = json!({"containers": containers(&[("main", "a:1")])});
    let mut held = pod("held", spec.clone());
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    let mut slow = pod("slow", spec);
    slow.metadata.annotations =
        Some([("simulate.podward.io/stop-seconds".to_owned(), "3".to_owned())].into());
    let pods = create(&client, held).await;
    create(&client, slow).await;
    for name in ["held", "slow"] {
        let get = async || pods.get(name).await.unwrap();
        eventually("the pod is ready", get, |pod| condition(pod, "Ready") == Some("True")).await;
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let deleted = Instant::now();
    let terminating = pods.get("slow").await.unwrap();
    assert!(terminating.metadata.deletion_timestamp.is_some());
    assert_eq!(condition(&terminating, "Ready"), Some("True"), "it still stops");
    eventually("the slow pod goes", async || pods.get_opt("slow").await.unwrap(), Option::is_none).await;
    // The API server's clock has a resolution of a second, so one may be missing.
    let took = deleted.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(10), "{took:?}");

    let get = async || pods.get("held").await.unwrap();
    let stopped =
        eventually("it stops", get, |pod| pod.metadata.deletion_grace_period_seconds == Some(0)).await;
    assert_eq!(condition(&stopped, "Ready"), Some("False"));
    assert!(
        stopped.status.unwrap().container_statuses.unwrap()[0].state.as_ref().unwrap().terminated.is_some()
    );
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("held", &PatchParams::default(), &patch).await.unwrap();
    eventually("the held pod goes", async || pods.get_opt("held").await.unwrap(), Option::is_none).await;
}

async fn starts_can_be_delayed(client: Client) {
    let mut late = pod("late", json!({"containers": containers(&[("main", "a:1")])}));
    late.metadata.annotations =
        Some([("simulate.podward.io/start-seconds".to_owned(), "4".to_owned())].into());
    let since = Instant::now();
    let pods = create(&client, late).await;
    let get = async || pods.get("late").await.unwrap();
    eventually("it is scheduled", get, |pod| condition(pod, "PodScheduled") == Some("True")).await;
    eventually("it is ready", get, |pod| condition(pod, "Ready") == Some("True")).await;
    assert!(since.elapsed() > Duration::from_millis(2900), "{:?}", since.elapsed());
}

async fn many_pods_come_and_go(client: Client) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    let deployment = json!({
        "metadata": {"name": "many"},
        "spec": {
            "replicas": 300,
            "selector": {"matchLabels": {"app": "many"}},
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": {"containers": containers(&[("main", "a:1")])},
            },
        },
    });
    let since = Instant::now();
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let available =
        async || deployments.get("many").await.unwrap().status.unwrap_or_default().available_replicas;
    eventually("all are available", available, |count| *count == Some(300)).await;
    println!("300 simulated pods available after {} ms", since.elapsed().as_millis());
    let listed = pods.list(&ListParams::default().labels("app=many")).await.unwrap();
    let ips: std::collections::BTreeSet<_> =
        listed.items.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
    assert_eq!(ips.len(), 300, "each has an address of its own");
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("many", &PatchParams::default(), &patch).await.unwrap();
    let left = async || pods.list(&ListParams::default().labels("app=many")).await.unwrap().items.len();
    eventually("all are gone", left, |count| *count == 0).await;
}
