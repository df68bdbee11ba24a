//! A cluster, two replicas' gRPC ports, and people with tokens.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use podward_proto::v1;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_proto::v1::lifecycle_client::LifecycleClient;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer};
use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
use podward_runtime::tls::{Certificates, TlsMetrics};
use podward_testbed::{Bed, Shape};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::cached_pod::{CachedPod, PodKey};
use crate::grpc::{Asked, AttachHub, Attachment, Deletions, GrpcArgs, Parts, services};

pub(super) const CONTROLLER: &str = "system:serviceaccount:podward-system:lifecycle-controller";
const SOON: Duration = Duration::from_secs(30);

pub(super) type Authorized = InterceptedService<Channel, BearerToken>;

pub(super) async fn within<F: Future>(future: F) -> F::Output {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited for {SOON:?} in vain"),
    }
}

/// The code and words of a refusal.
pub(super) fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

pub(super) struct World {
    pub(super) bed: Bed,
    pub(super) client: Client,
    pub(super) dir: tempfile::TempDir,
    authority: Authority,
    /// The replica that leads, and another.
    pub(super) leader: SocketAddr,
    pub(super) other: SocketAddr,
    pub(super) hub: Arc<Hub>,
    pub(super) wishes: Arc<Wishes>,
    _stop: tokio_util::sync::DropGuard,
}

impl World {
    pub(super) async fn start() -> Self {
        // Whoever was first in this process did it for all.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bed = Bed::builder(Shape::ControlPlane).name("grpc").start().await.unwrap();
        let client = bed.client();
        for crd in podward_api::crds() {
            Api::<CustomResourceDefinition>::all(client.clone())
                .create(&PostParams::default(), &crd)
                .await
                .unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let stop = CancellationToken::new();
        let own = controllers_client(&bed).await;
        let mut world = Self {
            leader: SocketAddr::from(([127, 0, 0, 1], 0)),
            other: SocketAddr::from(([127, 0, 0, 1], 0)),
            hub: Arc::default(),
            wishes: Arc::new(Wishes { client: client.clone(), asked: Mutex::default() }),
            _stop: stop.clone().drop_guard(),
            bed,
            client,
            dir,
            authority,
        };
        world.people().await;
        world.authority_established().await;
        let hub: Arc<dyn AttachHub> = world.hub.clone();
        world.leader = world.serve(&own, Some(hub), None, &stop).await;
        world.other = world.serve(&own, None, Some(world.leader), &stop).await;
        world
    }

    async fn serve(
        &self,
        client: &Client,
        hub: Option<Arc<dyn AttachHub>>,
        leader: Option<SocketAddr>,
        stop: &CancellationToken,
    ) -> SocketAddr {
        #[derive(Parser)]
        struct All {
            #[command(flatten)]
            grpc: GrpcArgs,
        }
        let token = self.token("podward-system", "lifecycle-controller", &[]).await;
        let file = |path: &PathBuf| path.display().to_string();
        let args = ["x", "--relay-ca", &file(&self.ca()), "--token-file", &file(&token)];
        let args = All::parse_from(args).grpc;
        let (cert, key) = self.server_certificate();
        let certificates = Certificates::load(cert, key, TlsMetrics::default()).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server =
            GrpcServer::bind(any, Arc::new(certificates), GrpcLimits::default(), GrpcMetrics::default());
        let server = server.await.unwrap();
        let parts = Parts {
            client: client.clone(),
            hub: watch::channel(hub).1,
            leader: watch::channel(leader.map(|leader| leader.to_string())).1,
            deletions: self.wishes.clone(),
        };
        let address = server.address();
        tokio::spawn(server.serve(services(&args, parts).await.unwrap(), stop.clone()));
        address
    }

    /// Namespaces, service accounts and their rights.
    async fn people(&self) {
        for namespace in ["podward-system", "shop", "bank"] {
            self.create::<Namespace>(None, json!({"metadata": {"name": namespace}})).await;
        }
        self.person("podward-system", "lifecycle-controller").await;
        self.person("podward-system", "validating-webhook").await;
        for name in ["operator", "author", "stranger", "deleter"] {
            self.person("shop", name).await;
        }
        let rule = |groups: &str, resources: &str, verbs: &[&str]| json!({"apiGroups": [groups], "resources": [resources], "verbs": verbs});
        self.role("author", &[rule("podward.io", "lifecyclehooks", &["create", "delete", "list"])]).await;
        self.role("operator", &[rule("", "pods", &["get", "update"])]).await;
        self.role("deleter", &[rule("", "pods", &["delete"])]).await;
        // What the lifecycle-controller needs for its gRPC port.
        self.role(
            "grpc",
            &[
                rule("authentication.k8s.io", "tokenreviews", &["create"]),
                rule("authorization.k8s.io", "subjectaccessreviews", &["create"]),
                rule("podward.io", "lifecyclehooks", &["create", "delete", "get", "list", "patch", "watch"]),
                rule("", "pods", &["get", "list", "watch"]),
                rule("", "pods/status", &["patch"]),
                rule("", "namespaces", &["get", "list", "watch"]),
            ],
        )
        .await;
        self.bind("author", "shop", "author").await;
        self.bind("grpc", "podward-system", "lifecycle-controller").await;
        for name in ["operator", "deleter"] {
            let binding = binding(name, "shop", name);
            self.create::<RoleBinding>(Some("shop"), binding).await;
        }
    }

    async fn person(&self, namespace: &str, name: &str) {
        self.create::<ServiceAccount>(Some(namespace), json!({"metadata": {"name": name}})).await;
    }

    async fn role(&self, name: &str, rules: &[Value]) {
        self.create::<ClusterRole>(None, json!({"metadata": {"name": name}, "rules": rules})).await;
    }

    async fn bind(&self, role: &str, namespace: &str, name: &str) {
        self.create::<ClusterRoleBinding>(None, binding(role, namespace, name)).await;
    }

    pub(super) async fn create<K>(&self, namespace: Option<&str>, object: Value) -> K
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let url = match namespace {
            Some(namespace) => K::url_path(&(), Some(namespace)),
            None => K::url_path(&(), None),
        };
        let object = with_kind::<K>(object);
        let request = kube::core::Request::new(url)
            .create(&PostParams::default(), serde_json::to_vec(&object).unwrap());
        self.client.request(request.unwrap()).await.unwrap()
    }

    /// A file with a new token of a service account.
    pub(super) async fn token(&self, namespace: &str, name: &str, audiences: &[&str]) -> PathBuf {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
        let spec =
            TokenRequestSpec { audiences, expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
        self.file(&format!("{name}{}.token", fastrand::u64(..)), &answer.status.unwrap().token)
    }

    pub(super) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    async fn authority_established(&self) {
        self.file("ca.crt", &self.authority.pem);
        // The definition is served once the API server has taken it in.
        let hooks: Api<podward_api::LifecycleHook> = Api::all(self.client.clone());
        within(async {
            while hooks.list(&Default::default()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    pub(super) fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    pub(super) fn server_certificate(&self) -> (PathBuf, PathBuf) {
        let (cert, key) = self.authority.issue();
        let number = fastrand::u64(..);
        (self.file(&format!("{number}.crt"), &cert), self.file(&format!("{number}.key"), &key))
    }

    pub(super) fn channel(&self, to: SocketAddr, token: PathBuf) -> Authorized {
        let channel = Connect::new(&format!("https://{to}"), Trust::file(self.ca())).unwrap().lazy().unwrap();
        InterceptedService::new(channel, BearerToken::from_file(token))
    }

    /// The registry at the replica that doesn't lead, for the service account `name` of the namespace shop.
    pub(super) async fn registry(&self, name: &str) -> HookRegistryClient<Authorized> {
        HookRegistryClient::new(self.channel(self.other, self.token("shop", name, &[]).await))
    }

    pub(super) async fn lifecycle(&self, namespace: &str, name: &str) -> LifecycleClient<Authorized> {
        LifecycleClient::new(self.channel(self.other, self.token(namespace, name, &[]).await))
    }

    /// A pod that has opted in, in the namespace shop.
    pub(super) async fn pod(&self, name: &str) -> Pod {
        let gate = podward_core::keys::SERVICE_READY_GATE;
        let object = json!({
            "metadata": {"name": name, "labels": {"kusionstack.io/control": "true", "app": name}},
            "spec": {
                "containers": [{"name": "c", "image": "i"}], "readinessGates": [{"conditionType": gate}],
                "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
            },
        });
        self.create(Some("shop"), object).await
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "shop")
    }
}

/// An impersonated client: what RBAC lacks, it lacks.
async fn controllers_client(bed: &Bed) -> Client {
    let kubeconfig = Kubeconfig::read_from(bed.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = Some(CONTROLLER.to_owned());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn binding(role: &str, namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {"name": format!("{role}-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    })
}

fn with_kind<K: kube::Resource<DynamicType = ()>>(mut object: Value) -> Value {
    object["apiVersion"] = K::api_version(&()).into_owned().into();
    object["kind"] = K::kind(&()).into_owned().into();
    object
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self) -> (String, String) {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// The leader's hub, as simple as can be: one question on each stream, and the answers that came.
#[derive(Default)]
pub(super) struct Hub {
    pub(super) answers: Arc<Mutex<Vec<v1::AttachAnswer>>>,
    pub(super) ended: Arc<tokio::sync::Notify>,
}

impl AttachHub for Hub {
    fn attach(&self, hook: &str) -> Result<Attachment, Status> {
        if hook != "attached" {
            return Err(Status::not_found(format!("hook {hook:?} is not registered")));
        }
        let (calls, calls_out) = mpsc::channel(4);
        let (answers, mut answers_out) = mpsc::channel(4);
        let message = |message| v1::AttachResponse { message: Some(message) };
        calls.try_send(message(v1::attach_response::Message::Attached(v1::Attached {}))).unwrap();
        let call = v1::AttachCall { call_id: 7, request: None };
        calls.try_send(message(v1::attach_response::Message::Call(call))).unwrap();
        let (kept, ended) = (Arc::clone(&self.answers), Arc::clone(&self.ended));
        tokio::spawn(async move {
            while let Some(answer) = answers_out.recv().await {
                kept.lock().push(answer);
            }
            drop(calls);
            ended.notify_one();
        });
        Ok(Attachment { calls: calls_out, answers })
    }
}

/// Remembers what it was asked.
pub(super) struct Wishes {
    client: Client,
    pub(super) asked: Mutex<Vec<(PodKey, Option<String>, Asked)>>,
}

#[tonic::async_trait]
impl Deletions for Wishes {
    async fn request(
        &self,
        pod: &PodKey,
        uid: Option<&str>,
        asked: &Asked,
    ) -> Result<Arc<CachedPod>, Status> {
        self.asked.lock().push((pod.clone(), uid.map(ToOwned::to_owned), asked.clone()));
        let pods: Api<CachedPod> = Api::namespaced(self.client.clone(), &pod.namespace);
        Ok(Arc::new(pods.get(&pod.name).await.map_err(|error| Status::not_found(error.to_string()))?))
    }
}
