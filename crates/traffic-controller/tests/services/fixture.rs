//! A real node with pods, Services and the traffic-controller.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::{FutureExt, TryStreamExt};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};
use podward_images::DemoImages;
use podward_images::{Image, workspace_dir};
use podward_proto::v1::hook_handler_client::HookHandlerClient;
use podward_proto::v1::{self, Evidence, HandleRequest, HandleResponse, Outcome, Phase};
use podward_runtime::grpc_client::{Connect, Trust};
use podward_testbed::{Command, ProxyMode, Shape, TestCluster};
use prost_types::Timestamp;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Request, Status};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// The Service of the pods `web-0` to `web-2`.
pub(crate) const WEB: &str = "web";
const NAMESPACE: &str = "podward-system";
const REPORTER: &str = "podward.local/reporter:v1";

static SHARED: OnceCell<Option<Fixture>> = OnceCell::const_new();

/// Returns the fixture that all tests share. The first call starts it.
pub(crate) async fn shared() -> &'static Fixture {
    // If it does not start, the other tests must not try again.
    let start = async || AssertUnwindSafe(Fixture::start(ApiServers::One)).catch_unwind().await.ok();
    let Some(fixture) = SHARED.get_or_init(start).await else {
        panic!("the cluster did not start; the first test printed the reason");
    };
    fixture
}

/// Takes down the cluster, if a test has started it.
pub(crate) async fn end(keep_logs: bool) {
    if let Some(Some(fixture)) = SHARED.get() {
        if keep_logs {
            fixture.cluster.keep_logs();
        }
        fixture.cluster.down().await.unwrap();
    }
}

/// The API servers of a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiServers {
    One,
    /// The watches of the second one can lag. The kubelet and the kube-proxy use it, the traffic-controller the first.
    Two,
}

/// The cluster, and the connection to the traffic-controller.
pub(crate) struct Fixture {
    pub(crate) cluster: Arc<TestCluster>,
    pub(crate) ca: PathBuf,
    channel: Channel,
    token: String,
    demo: String,
}

impl Fixture {
    pub(crate) async fn start(servers: ApiServers) -> Self {
        let images = DemoImages::default();
        let [v1, _] = images.build("dev").await.unwrap();
        let builder = TestCluster::builder(Shape::Node).proxy_mode(ProxyMode::Nftables).image(v1);
        let builder = match servers {
            ApiServers::One => builder.name("traffic"),
            ApiServers::Two => builder.name("traffic-two").api_servers(2).second_api_server("node1"),
        };
        let cluster = Arc::new(builder.start().await.unwrap());
        let reporter = Image::new(REPORTER)
            .file(cluster.tools().bin("busybox"), "/bin/busybox", 0o755)
            .text("/www/readyz", "ready\n")
            .text("/www/in-flight", "0\n")
            .entrypoint(["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"]);
        cluster.import_image(&reporter).await.unwrap();
        let ca = cluster.dir().join("test-ca.crt");
        std::fs::write(&ca, cluster.ca_pem()).unwrap();
        install(&cluster, servers).await;
        let address = spawn(&cluster, &ca, servers).await;
        let channel = channel(&cluster, address, &ca).await;
        let mut fixture = Self { cluster, ca, channel, token: String::new(), demo: images.v1 };
        fixture.token = fixture.token("lifecycle-controller").await;
        for name in [WEB, "reporter", "single"] {
            fixture.create_service(name, json!({})).await;
        }
        for name in ["web-0", "web-1", "web-2"] {
            fixture.create_pod(name, WEB, true).await;
        }
        fixture.create_pod("reporter", "reporter", true).await;
        fixture.create_pod("single", "single", true).await;
        fixture
    }

    /// Creates a Service of the pods with the label `app: <name>`, with the fields `spec`.
    pub(crate) async fn create_service(&self, name: &str, spec: Value) {
        let mut service = json!({
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        });
        for (field, value) in spec.as_object().unwrap() {
            service["spec"][field] = value.clone();
        }
        let services: Api<Service> = Api::default_namespaced(self.cluster.client());
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }

    pub(crate) async fn cluster_ip(&self, name: &str) -> SocketAddr {
        let services: Api<Service> = Api::default_namespaced(self.cluster.client());
        let service = services.get(name).await.unwrap();
        format!("{}:80", service.spec.unwrap().cluster_ip.unwrap()).parse().unwrap()
    }

    pub(crate) async fn create_pod(&self, name: &str, app: &str, in_service: bool) {
        let reports = app == "reporter";
        let mut labels = json!({"app": app, CONTROL_LABEL: CONTROL_VALUE});
        if reports {
            labels["podward.io/in-flight-port"] = "8080".into();
        }
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "readinessGates": [{"conditionType": SERVICE_READY_GATE}],
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "web",
                    "image": if reports { REPORTER } else { &self.demo },
                    "imagePullPolicy": "IfNotPresent",
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
                }],
            },
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        self.set_gate(name, in_service).await;
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.cluster.client())
    }

    pub(crate) async fn set_gate(&self, name: &str, open: bool) {
        let status = if open { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{"type": SERVICE_READY_GATE, "status": status}]}});
        let patch = Patch::Strategic(patch);
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Returns the pod as the lifecycle-controller describes it to hooks.
    pub(crate) async fn pod(&self, name: &str) -> v1::Pod {
        let pod = self.pods().get(name).await.unwrap();
        let ips = pod.status.as_ref().and_then(|status| status.pod_ips.clone()).unwrap_or_default();
        v1::Pod {
            namespace: pod.namespace().unwrap(),
            name: pod.name_any(),
            uid: pod.uid().unwrap(),
            ips: ips.into_iter().map(|ip| ip.ip).collect(),
            labels: pod.labels().clone().into_iter().collect(),
            ..v1::Pod::default()
        }
    }

    /// Returns a pod that belongs to no Service.
    pub(crate) fn gone(&self) -> v1::Pod {
        v1::Pod {
            namespace: "default".to_owned(),
            name: "gone".to_owned(),
            uid: "00000000-0000-0000-0000-000000000000".to_owned(),
            labels: [(CONTROL_LABEL.to_owned(), CONTROL_VALUE.to_owned())].into(),
            ..v1::Pod::default()
        }
    }

    pub(crate) fn question(&self, phase: Phase, pod: &v1::Pod, ago: Duration) -> HandleRequest {
        let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - ago;
        HandleRequest {
            hook_name: "traffic-controller".to_owned(),
            phase: phase.into(),
            pod: Some(pod.clone()),
            asked_at: Some(Timestamp {
                seconds: asked.as_secs().try_into().unwrap(),
                nanos: asked.subsec_nanos().try_into().unwrap(),
            }),
            question_id: format!("{}/{phase:?}/{}", pod.uid, asked.as_nanos()),
            attempt: 1,
            ..HandleRequest::default()
        }
    }

    pub(crate) async fn call(&self, request: HandleRequest) -> Result<HandleResponse, Status> {
        self.call_with(Some(&self.token), request).await
    }

    pub(crate) async fn call_with(
        &self,
        token: Option<&str>,
        request: HandleRequest,
    ) -> Result<HandleResponse, Status> {
        let mut request = Request::new(request);
        request.set_timeout(Duration::from_secs(10));
        if let Some(token) = token {
            let header = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", header);
        }
        HookHandlerClient::new(self.channel.clone()).handle(request).await.map(tonic::Response::into_inner)
    }

    /// Repeats the question until the answer is DONE, as the lifecycle-controller does. Returns the evidence.
    pub(crate) async fn until_done(&self, phase: Phase, name: &str) -> Evidence {
        // A new pod has no address yet when the first question is asked.
        self.until_done_for(phase, async || self.pod(name).await).await
    }

    /// The same for what `pod` returns each time.
    pub(crate) async fn until_done_for(&self, phase: Phase, pod: impl AsyncFn() -> v1::Pod) -> Evidence {
        let question = self.question(phase, &pod().await, Duration::ZERO);
        let end = Instant::now() + TIMEOUT;
        loop {
            let mut question = question.clone();
            let pod = pod().await;
            let name = pod.name.clone();
            question.pod = Some(pod);
            let answer = self.call(question).await.unwrap();
            if answer.outcome() == Outcome::Done {
                return answer.evidence.unwrap();
            }
            assert!(Instant::now() < end, "{phase:?} of {name} is pending: {}", answer.message);
            let again = answer.retry_after.map_or(Duration::from_secs(1), |time| time.try_into().unwrap());
            tokio::time::sleep(again).await;
        }
    }

    /// Returns when a slice first shows `pod` as not ready, from now on.
    pub(crate) fn watch_slice(&self, pod: &str) -> JoinHandle<Instant> {
        let (slices, pod) = (self.slices(), pod.to_owned());
        tokio::spawn(async move {
            let mut events = Box::pin(watcher(slices, watcher::Config::default()).applied_objects());
            loop {
                let slice = events.try_next().await.unwrap().unwrap();
                let endpoints = slice.endpoints.iter();
                let mut ours = endpoints.filter(|endpoint| {
                    endpoint.target_ref.as_ref().and_then(|target| target.name.as_deref()) == Some(&pod)
                });
                if ours.any(|endpoint| endpoint.conditions.as_ref().is_some_and(|c| c.ready == Some(false))) {
                    return Instant::now();
                }
            }
        })
    }

    /// Drains `pod`. Returns the evidence, and the time from the change of the slice to the answer.
    pub(crate) async fn prepare_and_time(&self, pod: &str) -> (Evidence, Duration) {
        let slice = self.watch_slice(pod);
        let (done, ()) = tokio::join!(self.until_done(Phase::Prepare, pod), self.set_gate(pod, false));
        let end = Instant::now();
        (done, end.saturating_duration_since(slice.await.unwrap()))
    }

    /// Waits until a slice lists `pod`.
    pub(crate) async fn until_listed(&self, pod: &str) {
        tokio::time::timeout(TIMEOUT, self.watch_slice(pod)).await.unwrap().unwrap();
    }

    /// Creates an Ingress that leads to `service`.
    pub(crate) async fn create_ingress(&self, service: &str) {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        let ingress = json!({"metadata": {"name": service}, "spec": {"defaultBackend": backend}});
        let ingresses: Api<Ingress> = Api::default_namespaced(self.cluster.client());
        ingresses.create(&PostParams::default(), &serde_json::from_value(ingress).unwrap()).await.unwrap();
    }

    /// Creates a slice of `service` with a ready endpoint on another node.
    pub(crate) async fn create_endpoint_elsewhere(&self, service: &str) {
        let slice = json!({
            "metadata": {"name": format!("{service}-elsewhere"), "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true}, "nodeName": "elsewhere"}],
            "ports": [{"port": 8080}],
        });
        let slice = serde_json::from_value(slice).unwrap();
        self.slices().create(&PostParams::default(), &slice).await.unwrap();
    }

    /// Changes the slice of [`Fixture::create_endpoint_elsewhere`] every 200 ms until it is dropped.
    pub(crate) async fn change_without_end(&self, service: &str) {
        let (slices, name) = (self.slices(), format!("{service}-elsewhere"));
        for round in 0_u64.. {
            let address = format!("10.9.9.{}", round % 200);
            let endpoints = json!({"endpoints": [{"addresses": [address], "conditions": {"ready": true}}]});
            slices.patch(&name, &PatchParams::default(), &Patch::Merge(endpoints)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::default_namespaced(self.cluster.client())
    }

    /// Returns a token of a service account of Podward, with the audience of the traffic-controller's hook.
    pub(crate) async fn token(&self, account: &str) -> String {
        self.token_for(account, &["podward.io/hooks/traffic-controller"]).await
    }

    /// Returns a token of a service account of Podward; for the API server if there is no audience.
    pub(crate) async fn token_for(&self, account: &str, audiences: &[&str]) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client(), NAMESPACE);
        token(&accounts, account, audiences).await
    }
}

async fn token(accounts: &Api<ServiceAccount>, account: &str, audiences: &[&str]) -> String {
    let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
    let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// Creates the namespace, the service accounts, and the deployed roles of the traffic-controller. Where there are two API
/// servers, also the canary, as the chart does.
async fn install(cluster: &TestCluster, servers: ApiServers) {
    let client = cluster.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let account = serde_json::from_value(json!({"metadata": {"name": "lifecycle-controller"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let file = workspace_dir().join(match servers {
        ApiServers::One => "deploy/podward/traffic-controller.yaml",
        ApiServers::Two => "tests/charts/cases/large/rendered.yaml",
    });
    let text = std::fs::read_to_string(file).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    // The traffic-controller runs as a process: it needs neither its workload nor its Service.
    let is_role = |object: &Value| {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let is_ours = name.trim_start_matches("podward-").starts_with("traffic-controller");
        let is_canary = kind == "Service" && name.ends_with("-canary");
        is_ours && (kind == "ServiceAccount" || kind.contains("Role") || is_canary)
    };
    for object in objects.into_iter().filter(Value::is_object).filter(is_role) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Starts the traffic-controller with the permissions of its service account. Returns its address.
async fn spawn(cluster: &TestCluster, ca: &std::path::Path, servers: ApiServers) -> SocketAddr {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), NAMESPACE);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": cluster.api_url(), "certificate-authority": ca}}],
        "users": [{"name": "us", "user": {"token": token(&accounts, "traffic-controller", &[]).await}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "us"}}],
        "current-context": "test",
    });
    let file = |name: &str| cluster.dir().join(format!("traffic-controller.{name}"));
    let pem = cluster.server_certificate(&[&cluster.node_ip().to_string()]).unwrap();
    std::fs::write(file("kubeconfig"), config.to_string()).unwrap();
    std::fs::write(file("crt"), pem.cert).unwrap();
    std::fs::write(file("key"), pem.key).unwrap();
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (address, admin) =
        (SocketAddr::new(cluster.node_ip(), 19_443), SocketAddr::new(cluster.node_ip(), 19_080));
    let command = Command::new("traffic-controller", env!("CARGO_BIN_EXE_traffic-controller"))
        .args(["--bind".to_owned(), address.to_string(), "--admin-bind".to_owned(), admin.to_string()])
        .args(["--kubeconfig".to_owned(), text(file("kubeconfig"))])
        .args(["--tls-cert".to_owned(), text(file("crt")), "--tls-key".to_owned(), text(file("key"))])
        .args(["--kube-proxy-metrics-url", "http://{node_ip}:10249/metrics", "--quiet-period", "0"])
        .args(["--dns-ttl", "0"])
        .args(["--controller-url", "https://127.0.0.1:1", "--threads", "1"]);
    let command = match servers {
        ApiServers::One => command,
        ApiServers::Two => {
            let address = cluster.node_ip().to_string();
            command.args([
                "--canary-service",
                "traffic-controller-canary",
                "--pod-ip",
                &address,
                "--propagation",
                "30",
            ])
        }
    };
    cluster.spawn(command).await.unwrap();
    address
}

/// Returns a channel to the traffic-controller when it is ready.
async fn channel(cluster: &TestCluster, address: SocketAddr, ca: &std::path::Path) -> Channel {
    let port = cluster.forward(address).await.unwrap();
    let connect = Connect::new(&format!("https://{port}"), Trust::file(ca)).unwrap();
    let channel = connect.with_server_name(&cluster.node_ip().to_string()).unwrap().lazy().unwrap();
    let end = Instant::now() + TIMEOUT;
    loop {
        let ask = HookHandlerClient::new(channel.clone()).handle(HandleRequest::default()).await;
        let status = ask.unwrap_err();
        if status.code() == tonic::Code::Unauthenticated {
            return channel;
        }
        assert!(Instant::now() < end, "{status:?}; its log is in {}", cluster.logs_dir().display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
