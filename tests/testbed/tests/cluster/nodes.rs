//! Clusters with three real nodes.

use std::{collections::BTreeMap, net::SocketAddr, process::Output, time::Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams, PostParams},
};
use libtest_mimic::Trial;
use podward_images::Image;
use podward_testbed::{Shape, TestCluster, TestClusterError, TestClusterStream};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{test, test_as_root};
use crate::support::{builder, condition, eventually, pod, start};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test_as_root(
            "nodes::pods_of_three_nodes_and_node_ports_are_reached_from_everywhere",
            pods_of_three_nodes_and_node_ports_are_reached_from_everywhere,
        ),
        test_as_root(
            "nodes::a_node_is_cut_off_and_restored_and_its_programs_stop_and_start",
            a_node_is_cut_off_and_restored_and_its_programs_stop_and_start,
        ),
        test("nodes::settings_of_nodes_that_do_not_exist", settings_of_nodes_that_do_not_exist),
    ]
}

const NODES: [&str; 3] = ["node1", "node2", "node3"];
const NODE_PORT: u16 = 30_080;
const IMAGE: &str = "podward.local/web:v1";

/// Returns the pod of a node: a server whose page is the node's name.
fn server(node: &str) -> Pod {
    let script = format!("echo -n {node} >/index.html; exec /bin/busybox httpd -f -p 8080 -h /");
    let mut server = pod(
        node,
        json!({
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "web",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", script],
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
            }],
        }),
    );
    server.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    server
}

/// Creates a server on each node, and a Service with a node port for them. Returns the addresses of the pods by node.
async fn serve_on_all_nodes(cluster: &TestCluster) -> BTreeMap<String, SocketAddr> {
    let image = Image::new(IMAGE).file(cluster.tools().bin("busybox"), "/bin/busybox", 0o755).file(
        cluster.tools().bin("kubectl"),
        "/bin/kubectl",
        0o755,
    );
    cluster.import_image(&image).await.unwrap();
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {
            "type": "NodePort",
            "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
        },
    });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut addresses = BTreeMap::new();
    for node in NODES {
        pods.create(&PostParams::default(), &server(node)).await.unwrap();
    }
    for node in NODES {
        let get = async || pods.get(node).await.unwrap();
        let ready = eventually("the pod is ready", get, |pod| condition(pod, "Ready") == Some("True")).await;
        let ip = ready.status.unwrap().pod_ip.unwrap();
        addresses.insert(node.to_owned(), format!("{ip}:8080").parse().unwrap());
    }
    addresses
}

async fn body(mut stream: TestClusterStream) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.rsplit_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// Returns the page at `to`, as seen from a node. Returns an empty text if nothing answers in time.
async fn page(cluster: &TestCluster, from: &str, to: SocketAddr) -> String {
    let get = async { body(cluster.node(from).unwrap().connect(to).await.ok()?).await.ok() };
    tokio::time::timeout(std::time::Duration::from_secs(2), get).await.ok().flatten().unwrap_or_default()
}

fn kubectl(cluster: &TestCluster, args: &[&str]) -> Output {
    let kubectl = cluster.tools().bin("kubectl");
    let kubectl =
        std::process::Command::new(kubectl).arg("--kubeconfig").arg(cluster.kubeconfig()).args(args).output();
    kubectl.unwrap()
}

async fn pods_of_three_nodes_and_node_ports_are_reached_from_everywhere() {
    let since = Instant::now();
    let described = builder(Shape::Node, "nodes").nodes(3).dns(true);
    let described = described.zone("node2", "b").taint("node3", "spare=yes:NoSchedule".parse().unwrap());
    let cluster = start(described).await;
    println!("three nodes after {} ms", since.elapsed().as_millis());
    nodes_have_their_settings(&cluster).await;

    let pods = serve_on_all_nodes(&cluster).await;
    println!("three servers after {} ms", since.elapsed().as_millis());
    every_node_reaches_every_pod_and_port(&cluster, &pods).await;
    let every = async |from| pods_of_a_node_reach_the_others(&cluster, from, &pods).await;
    join_all(NODES.map(every)).await;
    println!("all reached after {} ms", since.elapsed().as_millis());
    cluster.down().await.unwrap();
}

async fn nodes_have_their_settings(cluster: &TestCluster) {
    let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await.unwrap();
    let zones: Vec<Option<&String>> =
        nodes.iter().map(|node| node.labels().get("topology.kubernetes.io/zone")).collect();
    assert_eq!(zones, [None, Some(&"b".to_owned()), None]);
    for node in &nodes {
        // The node controller removes its own taints a moment after the node is ready.
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let given: Vec<_> =
            taints.iter().filter(|taint| !taint.key.starts_with("node.kubernetes.io/")).collect();
        let given = serde_json::to_value(given).unwrap();
        let expected = match node.name_any().as_str() {
            "node3" => json!([{"key": "spare", "value": "yes", "effect": "NoSchedule"}]),
            _ => json!([]),
        };
        assert_eq!(given, expected, "{}", node.name_any());
    }
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name()).collect();
    assert_eq!(names, NODES);
}

async fn every_node_reaches_every_pod_and_port(cluster: &TestCluster, pods: &BTreeMap<String, SocketAddr>) {
    for from in NODES {
        for to in cluster.nodes() {
            let address = pods[&to.name()];
            let ask = async || page(cluster, from, address).await;
            eventually(&format!("{from} reaches the pod of {}", to.name()), ask, |page| *page == to.name())
                .await;
            let port = SocketAddr::new(to.ip(), NODE_PORT);
            let ask = async || page(cluster, from, port).await;
            let answers = |page: &String| page.starts_with("node");
            eventually(&format!("{from} reaches the node port of {}", to.name()), ask, answers).await;
        }
    }
}

/// From the pod on `from`: the other pods by address, the Service by name, and the node ports. The commands run by
/// `kubectl exec`, for which the API server connects to the kubelet, as it does for logs.
async fn pods_of_a_node_reach_the_others(
    cluster: &TestCluster,
    from: &str,
    pods: &BTreeMap<String, SocketAddr>,
) {
    let mut script = "kubectl --server=http://web get --raw=/ | cut -c1-4; ".to_owned();
    for node in cluster.nodes() {
        let (pod, port) = (pods[&node.name()], SocketAddr::new(node.ip(), NODE_PORT));
        script +=
            &format!("busybox wget -qO- http://{pod}/; echo; busybox wget -qO- http://{port}/ | cut -c1-4; ");
    }
    let script = script.replace("busybox", "/bin/busybox").replace("cut", "/bin/busybox cut");
    let said = tokio::task::block_in_place(|| {
        kubectl(cluster, &["exec", from, "--", "/bin/busybox", "sh", "-c", &script])
    });
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "node\nnode1\nnode\nnode2\nnode\nnode3\nnode\n",
        "{said:?}"
    );
    let api: Api<Pod> = Api::default_namespaced(cluster.client());
    api.logs(from, &LogParams::default()).await.unwrap();
}

async fn a_node_is_cut_off_and_restored_and_its_programs_stop_and_start() {
    let cluster = start(builder(Shape::Node, "faults").nodes(3)).await;
    let pods = serve_on_all_nodes(&cluster).await;
    let reaches = async |from: &str, to: &str| page(&cluster, from, pods[to]).await == to;
    let again = async |from: &'static str, to: &'static str| {
        let ask = async || reaches(from, to).await;
        eventually(&format!("{from} reaches {to} again"), ask, |reached| *reached).await;
    };

    let (first, third) = (cluster.node("node1").unwrap(), cluster.node("node3").unwrap());
    third.cut_off().await.unwrap();
    let seen = tokio::join!(
        reaches("node1", "node3"),
        reaches("node3", "node2"),
        reaches("node3", "node3"),
        reaches("node2", "node1")
    );
    assert_eq!(seen, (false, false, true, true), "only node3 is cut off");
    // The first node, too. The API server, which runs there, still has this process as a client.
    first.cut_off().await.unwrap();
    third.restore().await.unwrap();
    again("node2", "node3").await;
    let seen = tokio::join!(reaches("node1", "node3"), reaches("node2", "node1"), reaches("node1", "node1"));
    assert_eq!(seen, (false, false, true), "only node1 is cut off");
    cluster.client().apiserver_version().await.unwrap();
    first.restore().await.unwrap();
    again("node1", "node3").await;
    again("node2", "node1").await;

    a_stopped_node_serves_and_starts_again(&cluster, &pods).await;
    cluster.down().await.unwrap();
}

/// Stops and starts the programs of a node through a handle that did not start them, as another process has it.
async fn a_stopped_node_serves_and_starts_again(cluster: &TestCluster, pods: &BTreeMap<String, SocketAddr>) {
    const PROGRAMS: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];
    let attached = TestCluster::attach(cluster.id()).await.unwrap();
    let node = attached.node("node2").unwrap();
    for program in PROGRAMS {
        node.start(program).await.unwrap_err();
        let process = node.process(program).await.unwrap();
        process.stop().await.unwrap();
        assert!(!cluster.component(&format!("{program}-node2")).unwrap().is_running());
        assert!(cluster.component(program).unwrap().is_running(), "that of node1 runs");
    }
    assert_eq!(page(cluster, "node1", pods["node2"]).await, "node2", "the pods go on");
    for program in PROGRAMS {
        assert!(node.start(program).await.unwrap().is_running());
    }
    let api: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut late = server("node2");
    late.metadata.name = Some("late".to_owned());
    api.create(&PostParams::default(), &late).await.unwrap();
    let get = async || api.get("late").await.unwrap();
    eventually("node2 runs a new pod", get, |pod| condition(pod, "Ready") == Some("True")).await;
    let unknown = node.process("etcd").await.unwrap_err().to_string();
    assert!(unknown.contains("etcd"), "{unknown}");
}

async fn settings_of_nodes_that_do_not_exist() {
    let refused = async |described: podward_testbed::TestClusterBuilder| match described.start().await {
        Err(TestClusterError::Unsupported(message)) => message,
        Err(error) => panic!("failed otherwise: {error}"),
        Ok(_) => panic!("started"),
    };
    let four = refused(builder(Shape::Node, "four").nodes(4)).await;
    assert!(four.contains("1 to 3 real nodes, not 4"), "{four}");
    let simulated = refused(builder(Shape::Simulated, "unreal").nodes(2)).await;
    assert!(simulated.contains("simulated"), "{simulated}");
    let other = refused(builder(Shape::Node, "other").nodes(2).zone("node3", "a")).await;
    assert!(other.contains("node3"), "{other}");
}
