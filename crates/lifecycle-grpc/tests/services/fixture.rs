//! A cluster, the gRPC ports of two replicas, and service accounts with tokens.

use std::fs;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Parser;
use futures::FutureExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use parking_lot::Mutex;
use podward_hooks::{HookArgs, HookProbe};
use podward_lifecycle_grpc::{AttachHub, GrpcArgs, ServiceDependencies, services};
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_proto::v1::lifecycle_client::LifecycleClient;
use podward_runtime::address_policy::{AddressPolicy, ApiServerAddresses, GuardedDialer};
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer};
use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
use podward_runtime::tls::{CertificateSecret, CertificateSource, ServingCertificate, TlsMetrics};
use podward_testbed::{Shape, TestCluster};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::authority::Authority;
use super::stand_ins::{TestHub, TestRecorder};

const CONTROLLER: &str = "system:serviceaccount:podward-system:lifecycle-controller";
const TIMEOUT: Duration = Duration::from_secs(30);
/// The right of a stream's caller is checked so often. Decisions of the API server are remembered for 10 s all the same.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Service accounts with the rights of `team`.
pub(crate) const TEAMMATES: [&str; 3] = ["teammate-1", "teammate-2", "teammate-3"];

static SHARED: OnceCell<Option<Fixture>> = OnceCell::const_new();

/// Returns the fixture that all tests share. The first call starts it.
pub(crate) async fn shared() -> &'static Fixture {
    // If it does not start, the other tests must not try again.
    let start = async || AssertUnwindSafe(Fixture::start()).catch_unwind().await.ok();
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

pub(crate) type Authorized = InterceptedService<Channel, BearerToken>;

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(output) => output,
        Err(_) => panic!("nothing happened within {TIMEOUT:?}"),
    }
}

/// Returns the code and the message of an error.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

pub(crate) struct Fixture {
    cluster: TestCluster,
    pub(crate) client: Client,
    dir: tempfile::TempDir,
    authority: Authority,
    /// The address of the replica that leads.
    pub(crate) leader: SocketAddr,
    /// The address of another replica.
    pub(crate) other: SocketAddr,
    pub(crate) hub: Arc<TestHub>,
    pub(crate) recorder: Arc<TestRecorder>,
    _stop: tokio_util::sync::DropGuard,
}

impl Fixture {
    async fn start() -> Self {
        let cluster = TestCluster::builder(Shape::ControlPlane).name("grpc").start().await.unwrap();
        let client = cluster.client();
        for crd in podward_api::crds() {
            Api::<CustomResourceDefinition>::all(client.clone())
                .create(&PostParams::default(), &crd)
                .await
                .unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let stop = CancellationToken::new();
        let own = controllers_client(&cluster).await;
        let mut fixture = Self {
            leader: SocketAddr::from(([127, 0, 0, 1], 0)),
            other: SocketAddr::from(([127, 0, 0, 1], 0)),
            hub: Arc::default(),
            recorder: Arc::new(TestRecorder {
                client: client.clone(),
                recorded: Mutex::default(),
                arrived: Default::default(),
                may_record: Default::default(),
                stored: Default::default(),
            }),
            _stop: stop.clone().drop_guard(),
            cluster,
            client,
            dir,
            authority,
        };
        fixture.file("ca.crt", fixture.ca_pem());
        fixture.create_service_accounts().await;
        fixture.wait_for_hooks().await;
        let hub: Arc<dyn AttachHub> = fixture.hub.clone();
        fixture.leader = fixture.serve(&own, Some(hub), None, &stop).await;
        fixture.other = fixture.serve(&own, None, Some(fixture.leader), &stop).await;
        fixture
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
        let args = GrpcArgs { recheck_interval: RECHECK_INTERVAL, ..All::parse_from(args).grpc };
        let (cert, key) = self.server_certificate();
        let certificates =
            ServingCertificate::load(CertificateSource::files(cert, key), TlsMetrics::default()).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server =
            GrpcServer::bind(any, Arc::new(certificates), GrpcLimits::default(), GrpcMetrics::default());
        let server = server.await.unwrap();
        let dialer = GuardedDialer::new(AddressPolicy::new(&[], ApiServerAddresses::fixed([])));
        let dependencies = ServiceDependencies {
            probe: HookProbe::new(HookArgs::default(), dialer),
            client: client.clone(),
            hub: watch::channel(hub).1,
            leader: watch::channel(leader.map(|leader| leader.to_string())).1,
            deletions: self.recorder.clone(),
            secret: CertificateSecret::default(),
        };
        let address = server.address();
        tokio::spawn(server.serve(services(&args, dependencies).await.unwrap(), stop.clone()));
        address
    }

    /// Creates namespaces, service accounts and their roles.
    async fn create_service_accounts(&self) {
        for namespace in ["podward-system", "shop", "bank"] {
            self.create::<Namespace>(None, json!({"metadata": {"name": namespace}})).await;
        }
        self.service_account("podward-system", "lifecycle-controller").await;
        self.service_account("podward-system", "validating-webhook").await;
        for name in ["operator", "author", "creator", "team", "outsider", "deleter", "leaver"] {
            self.service_account("shop", name).await;
        }
        let rule = |group: &str, resource: &str, verbs: &[&str]| {
            let (groups, resources) = ([group], [resource]);
            json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
        };
        let hooks = |verbs: &[&str]| rule("podward.io", "lifecyclehooks", verbs);
        self.role("author", &[hooks(&["create", "update", "delete", "list"])]).await;
        self.role("creator", &[hooks(&["create"])]).await;
        self.role("operator", &[rule("", "pods", &["get", "update"])]).await;
        self.role("deleter", &[rule("", "pods", &["delete"]), rule("", "pods/eviction", &["create"])]).await;
        // The rights that the lifecycle-controller needs for its gRPC port.
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
        self.bind("creator", "shop", "creator").await;
        // The rights of a team: a Role in its namespace.
        let role =
            json!({"metadata": {"name": "team"}, "rules": [hooks(&["create", "update", "delete", "list"])]});
        self.create::<Role>(Some("shop"), role).await;
        self.bind_in_shop("Role", "team", "team").await;
        for name in TEAMMATES {
            self.service_account("shop", name).await;
            self.bind_in_shop("Role", "team", name).await;
        }
        self.bind("grpc", "podward-system", "lifecycle-controller").await;
        for name in ["operator", "deleter"] {
            self.bind_in_shop("ClusterRole", name, name).await;
        }
    }

    /// Binds a role to the service account `name`, for the namespace shop.
    pub(crate) async fn bind_in_shop(&self, kind: &str, role: &str, name: &str) -> RoleBinding {
        let mut bound = binding(role, "shop", name);
        bound["roleRef"]["kind"] = kind.into();
        self.create::<RoleBinding>(Some("shop"), bound).await
    }

    /// Removes what [`bind_in_shop`](Self::bind_in_shop) has returned.
    pub(crate) async fn unbind(&self, bound: &RoleBinding) {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), "shop");
        bindings.delete(&bound.name_any(), &Default::default()).await.unwrap();
    }

    async fn service_account(&self, namespace: &str, name: &str) {
        self.create::<ServiceAccount>(Some(namespace), json!({"metadata": {"name": name}})).await;
    }

    async fn role(&self, name: &str, rules: &[Value]) {
        self.create::<ClusterRole>(None, json!({"metadata": {"name": name}, "rules": rules})).await;
    }

    async fn bind(&self, role: &str, namespace: &str, name: &str) {
        self.create::<ClusterRoleBinding>(None, binding(role, namespace, name)).await;
    }

    pub(crate) async fn create<K>(&self, namespace: Option<&str>, object: Value) -> K
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

    /// Returns a file with a new token of a service account.
    pub(crate) async fn token(&self, namespace: &str, name: &str, audiences: &[&str]) -> PathBuf {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
        let spec =
            TokenRequestSpec { audiences, expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
        self.file(&format!("{name}{}.token", fastrand::u64(..)), &answer.status.unwrap().token)
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    async fn wait_for_hooks(&self) {
        // The API server needs some time before it serves a new definition.
        let hooks: Api<podward_api::LifecycleHook> = Api::all(self.client.clone());
        within(async {
            while hooks.list(&Default::default()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    pub(crate) fn server_certificate(&self) -> (PathBuf, PathBuf) {
        let (cert, key) = self.authority.issue();
        let number = fastrand::u64(..);
        (self.file(&format!("{number}.crt"), &cert), self.file(&format!("{number}.key"), &key))
    }

    pub(crate) fn channel(&self, to: SocketAddr, token: PathBuf) -> Authorized {
        let channel = Connect::new(&format!("https://{to}"), Trust::file(self.ca())).unwrap().lazy().unwrap();
        InterceptedService::new(channel, BearerToken::from_file(token))
    }

    /// Returns a client of the registry at the replica that does not lead, for the service account `name` of the
    /// namespace shop.
    pub(crate) async fn registry(&self, name: &str) -> HookRegistryClient<Authorized> {
        HookRegistryClient::new(self.channel(self.other, self.token("shop", name, &[]).await))
    }

    pub(crate) async fn lifecycle(&self, namespace: &str, name: &str) -> LifecycleClient<Authorized> {
        LifecycleClient::new(self.channel(self.other, self.token(namespace, name, &[]).await))
    }

    /// Creates a pod in the namespace shop that has opted in.
    pub(crate) async fn pod(&self, name: &str) -> Pod {
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

    /// Waits until the hub has no stream, and forgets that streams have ended.
    pub(crate) async fn until_all_detached(&self) {
        within(async {
            while self.hub.open.load(Ordering::SeqCst) > 0 {
                self.hub.ended.notified().await;
            }
        })
        .await;
        // The end of several streams may be noted once more.
        let _ = self.hub.ended.notified().now_or_never();
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "shop")
    }
}

/// Returns a client with the rights of the lifecycle-controller only.
async fn controllers_client(cluster: &TestCluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
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
