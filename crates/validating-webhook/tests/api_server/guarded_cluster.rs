//! A test cluster whose API server calls the webhook for deletes and evictions.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::process::Output;
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use podward_core::keys::{CONTROL_LABEL, SERVICE_READY_GATE};
use podward_core::webhook_path::{PathSecret, route_of};
use podward_images::{build_workspace, workspace_dir};
use podward_testbed::{Command, Process, Shape, TestCluster};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const PORT: u16 = 18_999;
const SERVICE: &str = "validating-webhook.podward-system.svc";
const USER: &str = "system:serviceaccount:podward-system:validating-webhook";

pub(crate) struct GuardedCluster {
    pub(crate) cluster: TestCluster,
    program: String,
    webhook: Process,
}

/// Repeats `ask` until `seen` returns true.
pub(crate) async fn eventually<T: Debug>(
    what: &str,
    ask: impl AsyncFn() -> T,
    seen: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = ask().await;
        if seen(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not after {TIMEOUT:?}, but {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl GuardedCluster {
    pub(crate) async fn start(name: &str) -> Self {
        let cluster = TestCluster::builder(Shape::ControlPlane).name(name).start().await.unwrap();
        let program = build_workspace("dev").await.unwrap().path("validating-webhook").unwrap();
        let client = cluster.client();
        for file in ["namespace.yaml", "validating-webhook.yaml"] {
            let path = cluster.dir().join(file);
            std::fs::write(
                &path,
                json!({"apiVersion": "v1", "kind": "List", "items": account(file)}).to_string(),
            )
            .unwrap();
            let applied = kubectl(&cluster, &["apply", "-f", path.to_str().unwrap()]);
            assert!(applied.status.success(), "{applied:?}");
        }
        let program = program.to_str().unwrap().to_owned();
        let webhook = run(&cluster, &program, &[]).await;
        register(&cluster).await;
        let guarded = Self { cluster, program, webhook };
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &from(json!({"metadata": {"name": "n1"}}))).await.unwrap();
        let ready = json!({"status": {"conditions": [{
            "type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z",
            "lastHeartbeatTime": k8s_openapi::jiff::Timestamp::now().to_string(), "reason": "KubeletReady",
            "message": "",
        }]}});
        nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        guarded.service_account("default").await;
        // The API server needs a moment to load the configuration.
        let held = async || {
            guarded.create("default", "canary").await;
            match guarded.pods("default").delete("canary", &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) => status.code,
                gone => gone.map(|_| 200).unwrap(),
            }
        };
        eventually("the webhook is called", held, |code| *code == 429).await;
        guarded
    }

    pub(crate) fn client(&self) -> Client {
        self.cluster.client()
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client(), namespace)
    }

    /// Creates an opted-in pod on the node n1.
    pub(crate) async fn create(&self, namespace: &str, name: &str) {
        self.create_with(namespace, name, json!({}), json!({})).await;
    }

    pub(crate) async fn create_with(&self, namespace: &str, name: &str, metadata: Value, spec: Value) {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {CONTROL_LABEL: "true"}},
            "spec": {
                "nodeName": "n1", "terminationGracePeriodSeconds": 0,
                "readinessGates": [{"conditionType": SERVICE_READY_GATE}],
                "containers": [{"name": "web", "image": "web:1"}],
            },
        });
        for (part, changes) in [("metadata", metadata), ("spec", spec)] {
            for (key, value) in changes.as_object().unwrap() {
                pod[part][key] = value.clone();
            }
        }
        self.pods(namespace).create(&PostParams::default(), &from(pod)).await.unwrap();
    }

    pub(crate) async fn namespace(&self, name: &str, labels: Value) {
        let namespace: Namespace = from(json!({"metadata": {"name": name, "labels": labels}}));
        Api::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
        self.service_account(name).await;
    }

    /// Waits for the service account, without which no pod can be created.
    async fn service_account(&self, namespace: &str) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let found = async || accounts.get_opt("default").await.unwrap().is_some();
        eventually("the service account", found, |found| *found).await;
    }

    pub(crate) async fn evict(&self, namespace: &str, name: &str, version: &str) -> kube::Result<Value> {
        self.evict_with(namespace, name, version, json!({})).await
    }

    pub(crate) async fn evict_with(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
        preconditions: Value,
    ) -> kube::Result<Value> {
        let eviction = json!({
            "apiVersion": format!("policy/{version}"), "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": preconditions},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let request = hyper::Request::post(path).header("content-type", "application/json");
        self.client().request(request.body(eviction.to_string().into_bytes()).unwrap()).await
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Output {
        kubectl(&self.cluster, arguments)
    }

    pub(crate) async fn kill_the_webhook(&self) {
        self.webhook.kill().await.unwrap();
    }

    /// Starts the webhook again with more `flags`.
    pub(crate) async fn restart_the_webhook(&mut self, flags: &[String]) {
        self.kill_the_webhook().await;
        self.webhook = run(&self.cluster, &self.program, flags).await;
    }

    pub(crate) async fn down(self) {
        self.cluster.down().await.unwrap();
    }
}

fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(cluster.tools().bin("kubectl"));
    command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(arguments).output().unwrap()
}

/// Returns the objects in a file of deploy/podward without the workload, because the webhook runs as a process.
fn account(file: &str) -> Vec<Value> {
    let mut objects = documents(file);
    objects.retain(|object| {
        !["Deployment", "Service", "PodDisruptionBudget"].contains(&object["kind"].as_str().unwrap())
    });
    objects
}

fn documents(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(workspace_dir().join("deploy/podward").join(file)).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents.into_iter().filter(Value::is_object).collect()
}

/// Returns the secret in the paths of the webhook.
pub(crate) fn secret() -> PathSecret {
    PathSecret::of_random([7; 32])
}

/// Starts the webhook with the permissions of its service account.
async fn run(cluster: &TestCluster, program: &str, flags: &[String]) -> Process {
    let kubeconfig =
        cluster.client_kubeconfig(USER, &["system:serviceaccounts", "system:authenticated"]).unwrap();
    let pem = cluster.server_certificate(&[&cluster.node_ip().to_string(), SERVICE]).unwrap();
    let (cert, key) = (cluster.dir().join("webhook.crt"), cluster.dir().join("webhook.key"));
    let path = cluster.dir().join("webhook-path");
    std::fs::write(&path, secret().reveal()).unwrap();
    std::fs::write(&cert, &pem.cert).unwrap();
    std::fs::write(&key, &pem.key).unwrap();
    let at = SocketAddr::new(cluster.node_ip(), PORT);
    let admin = SocketAddr::new(cluster.node_ip(), PORT - 1);
    let command = Command::new("validating-webhook", program).args([
        format!("--bind={at}"),
        format!("--admin-bind={admin}"),
        format!("--tls-cert={}", cert.display()),
        format!("--tls-key={}", key.display()),
        format!("--webhook-path-file={}", path.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controller-url=https://{}", SocketAddr::new(cluster.node_ip(), 1)),
        format!("--controller-ca={}", cert.display()),
    ]);
    let command = command.args(flags);
    let process = cluster.spawn(command).await.unwrap();
    let ready = async || {
        assert!(process.is_running(), "{}", process.log_tail(20));
        ask(cluster, admin).await
    };
    eventually("the webhook is ready", ready, |answer| answer.starts_with("HTTP/1.1 200")).await;
    process
}

async fn ask(cluster: &TestCluster, admin: SocketAddr) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut answer = String::new();
    if let Ok(mut stream) = cluster.connect(admin).await {
        let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        if stream.write_all(request).await.is_ok() {
            // The text before an error counts as a response.
            let _ = stream.read_to_string(&mut answer).await;
        }
    }
    answer
}

/// Creates the webhook configuration for deletes and evictions, with the URL of the process instead of the Service.
async fn register(cluster: &TestCluster) {
    let is_validating = |document: &Value| document["kind"] == "ValidatingWebhookConfiguration";
    let mut configuration = documents("webhooks.yaml").into_iter().find(is_validating).unwrap();
    let entries = configuration["webhooks"].as_array_mut().unwrap();
    entries
        .retain(|entry| ["/delete", "/evict"].contains(&route_of(entry["name"].as_str().unwrap()).unwrap()));
    assert_eq!(entries.len(), 4);
    for entry in entries {
        let path = secret().path(route_of(entry["name"].as_str().unwrap()).unwrap());
        let url = format!("https://{}{path}", SocketAddr::new(cluster.node_ip(), PORT));
        entry["clientConfig"] =
            json!({"url": url, "caBundle": ByteString(cluster.ca_pem().as_bytes().to_vec())});
    }
    let configuration: ValidatingWebhookConfiguration = from(configuration);
    Api::all(cluster.client()).create(&PostParams::default(), &configuration).await.unwrap();
}

pub(crate) fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
