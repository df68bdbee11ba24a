use std::{net::SocketAddr, time::Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use libtest_mimic::Trial;
use podward_images::Image;
use podward_testbed::{Shape, TestCluster, TestClusterError};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{test, test_as_root};
use crate::support::{builder, condition, eventually, pod, start};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test_as_root("node::pods_run_and_a_service_routes_to_them", pods_run_and_a_service_routes_to_them),
        test_as_root("node::pods_find_services_by_name", pods_find_services_by_name),
        test("node::only_a_real_node_has_dns", only_a_real_node_has_dns),
    ]
}

/// The page of the server.
const PAGE: &str = "served from a pod\n";

/// Creates a pod that serves [`PAGE`] and a Service for it, both called web.
async fn serve_web(cluster: &TestCluster) {
    let image = Image::new("podward.local/web:v1")
        .file(cluster.tools().bin("busybox"), "/bin/busybox", 0o755)
        .text("/www/index.html", PAGE)
        .entrypoint(["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"]);
    cluster.import_image(&image).await.unwrap();

    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let service =
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let address: SocketAddr = format!("{}:80", service.spec.unwrap().cluster_ip.unwrap()).parse().unwrap();
    let spec = json!({
        "containers": [{
            "name": "web",
            "image": "podward.local/web:v1",
            "imagePullPolicy": "Never",
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        }],
    });
    pods.create(&PostParams::default(), &pod("web", spec)).await.unwrap();
    let running = async || pods.get("web").await.unwrap();
    eventually("the pod is ready", running, |pod| condition(pod, "Ready") == Some("True")).await;

    let get = async || -> std::io::Result<String> {
        let mut stream = cluster.connect(address).await.map_err(std::io::Error::other)?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let served = |answer: &std::io::Result<String>| answer.as_ref().is_ok_and(|text| text.contains(PAGE));
    eventually("the Service answers", get, served).await.unwrap();
}

async fn pods_run_and_a_service_routes_to_them() {
    let cluster = start(builder(Shape::Node, "node")).await;
    serve_web(&cluster).await;
    cluster.down().await.unwrap();
}

/// The script of a pod with the cluster DNS: it resolves a Service by each of its names, and a name outside of the
/// cluster, which does not exist. kubectl is the client, because its resolver needs no library.
const LOOK_UP: &str = "\
cat /etc/resolv.conf
for name in web web.default web.default.svc web.default.svc.cluster.local example.com; do
  echo \"$name: $(kubectl --request-timeout=10s --server=http://$name get --raw=/ 2>&1)\"
done
";

async fn pods_find_services_by_name() {
    let cluster = start(builder(Shape::Node, "dns").dns(true)).await;
    serve_web(&cluster).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());

    let client = Image::new("podward.local/client:v1")
        .file(cluster.tools().bin("busybox"), "/bin/busybox", 0o755)
        .file(cluster.tools().bin("kubectl"), "/bin/kubectl", 0o755);
    cluster.import_image(&client).await.unwrap();
    let spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "client",
            "image": client.name(),
            "imagePullPolicy": "Never",
            "command": ["/bin/busybox", "sh", "-c", LOOK_UP],
        }],
    });
    let asked = Instant::now();
    pods.create(&PostParams::default(), &pod("client", spec)).await.unwrap();
    let phase = async || pods.get("client").await.unwrap().status.unwrap().phase.unwrap_or_default();
    let phase = eventually("the client ends", phase, |phase| phase == "Succeeded" || phase == "Failed").await;
    let said = pods.logs("client", &LogParams::default()).await.unwrap();
    println!("{phase} after {} ms:\n{said}", asked.elapsed().as_millis());
    assert_eq!(phase, "Succeeded", "{said}");
    for name in ["web", "web.default", "web.default.svc", "web.default.svc.cluster.local"] {
        assert!(said.contains(&format!("\n{name}: {PAGE}")), "{name}: {said}");
    }
    assert!(said.contains("nameserver 10.96.0.10\n"), "{said}");
    assert!(said.contains("search default.svc.cluster.local svc.cluster.local cluster.local\n"), "{said}");
    assert!(said.contains("lookup example.com on 10.96.0.10:53: no such host"), "{said}");
    cluster.down().await.unwrap();
}

async fn only_a_real_node_has_dns() {
    let started = builder(Shape::Simulated, "nameless").dns(true).start().await;
    let Err(TestClusterError::Unsupported(message)) = started else { panic!("started, or failed otherwise") };
    assert!(message.contains("simulated"), "{message}");
}
