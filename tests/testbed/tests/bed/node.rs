use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, api::PostParams};
use podward_testbed::{Image, Shape};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{builder, condition, eventually, pod, start};

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_and_a_service_leads_to_them() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a node needs root");
        return;
    }
    let bed = start(builder(Shape::Node, "node")).await;
    let image = Image::new("podward.local/web:v1")
        .file(bed.tools().bin("busybox"), "/bin/busybox", 0o755)
        .text("/www/index.html", "served from a pod\n")
        .entrypoint(["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"]);
    bed.import_image(&image).await.unwrap();

    let pods: Api<Pod> = Api::default_namespaced(bed.client());
    let services: Api<Service> = Api::default_namespaced(bed.client());
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let service =
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let address = format!("{}:80", service.spec.unwrap().cluster_ip.unwrap()).parse().unwrap();
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
        let mut stream = bed.connect(address).await.map_err(std::io::Error::other)?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let served = |answer: &std::io::Result<String>| {
        answer.as_ref().is_ok_and(|text| text.contains("served from a pod"))
    };
    eventually("the Service answers", get, served).await.unwrap();
    bed.down().await.unwrap();
}
