//! A node with pods, Services and the traffic-controller.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use podward_core::keys::{CONTROL_LABEL, CONTROL_VALUE, SERVICE_READY_GATE};
use podward_proto::v1::hook_handler_client::HookHandlerClient;
use podward_proto::v1::{self, Evidence, HandleRequest, HandleResponse, Outcome, Phase};
use podward_runtime::grpc_client::{Connect, Trust};
use podward_support::DemoImages;
use podward_testbed::{Bed, Command, Image, ProxyMode, Shape, workspace_dir};
use prost_types::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Request, Status};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The Service of the pods `web-0` to `web-2`.
pub(crate) const WEB: &str = "web";
const NAMESPACE: &str = "podward-system";
const TELLER: &str = "podward.local/teller:v1";

pub(crate) struct Scene {
    pub(crate) bed: Arc<Bed>,
    pub(crate) ca: PathBuf,
    channel: Channel,
    token: String,
    demo: String,
}

impl Scene {
    pub(crate) async fn start() -> Self {
        let images = DemoImages::default();
        let [v1, _] = images.build("dev").await.unwrap();
        let bed = Arc::new(
            Bed::builder(Shape::Node)
                .name("traffic")
                .proxy_mode(ProxyMode::Nftables)
                .image(v1)
                .start()
                .await
                .unwrap(),
        );
        let teller = Image::new(TELLER)
            .file(bed.tools().bin("busybox"), "/bin/busybox", 0o755)
            .text("/www/readyz", "ready\n")
            .text("/www/in-flight", "0\n")
            .entrypoint(["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"]);
        bed.import_image(&teller).await.unwrap();
        let ca = bed.dir().join("test-ca.crt");
        std::fs::write(&ca, bed.ca_pem()).unwrap();
        install(&bed).await;
        let address = spawn(&bed, &ca).await;
        let channel = channel(&bed, address, &ca).await;
        let mut scene = Self { bed, ca, channel, token: String::new(), demo: images.v1 };
        scene.token = scene.token("lifecycle-controller").await;
        for name in [WEB, "teller", "single"] {
            scene.create_service(name).await;
        }
        for name in ["web-0", "web-1", "web-2"] {
            scene.create_pod(name, WEB, true).await;
        }
        scene.create_pod("teller", "teller", true).await;
        scene.create_pod("single", "single", true).await;
        scene
    }

    pub(crate) async fn end(self) {
        self.bed.down().await.unwrap();
    }

    async fn create_service(&self, name: &str) {
        let service = json!({
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        });
        let services: Api<Service> = Api::default_namespaced(self.bed.client());
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }

    pub(crate) async fn cluster_ip(&self, name: &str) -> SocketAddr {
        let services: Api<Service> = Api::default_namespaced(self.bed.client());
        let service = services.get(name).await.unwrap();
        format!("{}:80", service.spec.unwrap().cluster_ip.unwrap()).parse().unwrap()
    }

    pub(crate) async fn create_pod(&self, name: &str, app: &str, in_service: bool) {
        let tells = app == "teller";
        let mut labels = json!({"app": app, CONTROL_LABEL: CONTROL_VALUE});
        if tells {
            labels["podward.io/in-flight-port"] = "8080".into();
        }
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "readinessGates": [{"conditionType": SERVICE_READY_GATE}],
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "web",
                    "image": if tells { TELLER } else { &self.demo },
                    "imagePullPolicy": "IfNotPresent",
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
                }],
            },
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        self.set_gate(name, in_service).await;
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.bed.client())
    }

    pub(crate) async fn set_gate(&self, name: &str, open: bool) {
        let status = if open { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{"type": SERVICE_READY_GATE, "status": status}]}});
        let patch = Patch::Strategic(patch);
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pod as a hook is told of it.
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

    /// A pod that no Service knows.
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

    /// Asks until it is done, as the lifecycle-controller does.
    pub(crate) async fn until_done(&self, phase: Phase, name: &str) -> Evidence {
        let question = self.question(phase, &self.pod(name).await, Duration::ZERO);
        let end = Instant::now() + PATIENCE;
        loop {
            let mut question = question.clone();
            // A young pod has no address when it is asked about for the first time.
            question.pod = Some(self.pod(name).await);
            let answer = self.call(question).await.unwrap();
            if answer.outcome() == Outcome::Done {
                return answer.evidence.unwrap();
            }
            assert!(Instant::now() < end, "{phase:?} of {name} waits: {}", answer.message);
            let again = answer.retry_after.map_or(Duration::from_secs(1), |time| time.try_into().unwrap());
            tokio::time::sleep(again).await;
        }
    }

    /// When a slice first shows `pod` not ready, from now on.
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

    /// Waits until a slice names `pod`.
    pub(crate) async fn until_listed(&self, pod: &str) {
        tokio::time::timeout(PATIENCE, self.watch_slice(pod)).await.unwrap().unwrap();
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::default_namespaced(self.bed.client())
    }

    /// A token of a service account of Podward.
    pub(crate) async fn token(&self, account: &str) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.bed.client(), NAMESPACE);
        token(&accounts, account).await
    }
}

async fn token(accounts: &Api<ServiceAccount>, account: &str) -> String {
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// The namespace, the accounts, and the rights of the traffic-controller as they are deployed.
async fn install(bed: &Bed) {
    let client = bed.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let account = serde_json::from_value(json!({"metadata": {"name": "lifecycle-controller"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let file = workspace_dir().join("deploy/podward/traffic-controller.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    // It runs as a process here: no workload, and nothing that leads to one.
    let is_right = |object: &Value| {
        let kind = object["kind"].as_str().unwrap();
        kind == "ServiceAccount" || kind.contains("Role")
    };
    for object in objects.into_iter().filter(Value::is_object).filter(is_right) {
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

/// Starts the traffic-controller with its own account's rights, and tells where it serves.
async fn spawn(bed: &Bed, ca: &std::path::Path) -> SocketAddr {
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), NAMESPACE);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": {"server": bed.api_url(), "certificate-authority": ca}}],
        "users": [{"name": "us", "user": {"token": token(&accounts, "traffic-controller").await}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "us"}}],
        "current-context": "bed",
    });
    let file = |name: &str| bed.dir().join(format!("traffic-controller.{name}"));
    let pem = bed.server_certificate(&[&bed.node_ip().to_string()]).unwrap();
    std::fs::write(file("kubeconfig"), config.to_string()).unwrap();
    std::fs::write(file("crt"), pem.cert).unwrap();
    std::fs::write(file("key"), pem.key).unwrap();
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (serves, admin) = (SocketAddr::new(bed.node_ip(), 19_443), SocketAddr::new(bed.node_ip(), 19_080));
    let command = Command::new("traffic-controller", env!("CARGO_BIN_EXE_traffic-controller"))
        .args(["--bind".to_owned(), serves.to_string(), "--admin-bind".to_owned(), admin.to_string()])
        .args(["--kubeconfig".to_owned(), text(file("kubeconfig"))])
        .args(["--tls-cert".to_owned(), text(file("crt")), "--tls-key".to_owned(), text(file("key"))])
        .args(["--kube-proxy-metrics-url", "http://127.0.0.1:10249/metrics", "--quiet-period", "0"])
        .args(["--controller-url", "https://127.0.0.1:1", "--threads", "1"]);
    bed.spawn(command).await.unwrap();
    serves
}

/// A channel to it, once it is ready.
async fn channel(bed: &Bed, address: SocketAddr, ca: &std::path::Path) -> Channel {
    let port = bed.forward(address).await.unwrap();
    let connect = Connect::new(&format!("https://{port}"), Trust::file(ca)).unwrap();
    let channel = connect.with_server_name(&bed.node_ip().to_string()).unwrap().lazy().unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        let ask = HookHandlerClient::new(channel.clone()).handle(HandleRequest::default()).await;
        let status = ask.unwrap_err();
        if status.code() == tonic::Code::Unauthenticated {
            return channel;
        }
        assert!(Instant::now() < end, "{status:?}; its log is in {}", bed.logs_dir().display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
