//! Servers let nobody but Podward call. A real API server says who calls, and lets them ask with the rights of
//! `rbac.yaml`.

use std::path::Path;

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, PostParams},
    config::Kubeconfig,
    core::GroupVersionKind,
};
use podward_images::{build_program, workspace_dir};
use podward_proto::v1::{HandleRequest, Phase};
use podward_testbed::{Shape, TestCluster};
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::{
    conversation::Server,
    files::Files,
    program::Example,
    questions::{pod, question},
};

const PODWARD: &str = "system:serviceaccount:podward-system:lifecycle-controller";
const AUDIENCE: &str = "podward.io/hooks/example-balancer";

#[tokio::test(flavor = "multi_thread")]
async fn servers_let_only_podward_in() {
    build_program("podward-testbed", "dev").await.unwrap();
    let bed = TestCluster::builder(Shape::ControlPlane).name("example-callers").start().await.unwrap();
    let client = bed.client();
    apply(&client, "rbac.yaml").await;
    for (namespace, name) in [("podward-system", "lifecycle-controller"), ("default", "stranger")] {
        account(&client, namespace, name).await;
    }
    let callers = Callers {
        podward: token(&client, "podward-system", "lifecycle-controller", Some(AUDIENCE)).await,
        too_general: token(&client, "podward-system", "lifecycle-controller", None).await,
        replayed: token(&client, "podward-system", "lifecycle-controller", Some("podward.io/hooks/other"))
            .await,
        stranger: token(&client, "default", "stranger", Some(AUDIENCE)).await,
    };
    let files = Files::new();
    let cluster = cluster(&bed, &files);
    files.write("api-token", &token(&client, "balancer", "example-balancer", None).await);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bed",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "example", "user": {"tokenFile": files.path("api-token")}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "example"}}],
    });
    files.write("kubeconfig", &kubeconfig.to_string());

    let restricted = ["--caller".to_owned(), PODWARD.to_owned()];
    let kubeconfig = files.path("kubeconfig");
    let env = [("KUBECONFIG", kubeconfig.as_path())];
    let server = Server::start_with(Example::RustServer, &files, &restricted, &env).await;
    callers.call(&server).await;
    server.program.stop().await;

    let api = ["--api-server", cluster["server"].as_str().unwrap(), "--api-ca"].map(ToOwned::to_owned);
    let api = api.into_iter().chain([
        files.arg("api-ca.crt"),
        "--api-token-file".to_owned(),
        files.arg("api-token"),
    ]);
    let args: Vec<String> = restricted.into_iter().chain(api).collect();
    let server = Server::start(Example::PythonServer, &files, &args).await;
    callers.call(&server).await;
    // Only while the API server says so.
    bed.down().await.unwrap();
    let unknown = format!("{}x", callers.podward);
    assert_eq!(call(&server, Some(&unknown)).await, Code::Unavailable);
    server.program.stop().await;
}

struct Callers {
    podward: String,
    too_general: String,
    /// A token that another hook has received.
    replayed: String,
    stranger: String,
}

impl Callers {
    async fn call(&self, server: &Server) {
        for _ in 0..2 {
            assert_eq!(call(server, None).await, Code::Unauthenticated, "no token");
            assert_eq!(
                call(server, Some("nonsense")).await,
                Code::Unauthenticated,
                "no token of this cluster"
            );
            assert_eq!(
                call(server, Some(&self.too_general)).await,
                Code::Unauthenticated,
                "for the API server"
            );
            assert_eq!(call(server, Some(&self.replayed)).await, Code::Unauthenticated, "another hook's");
            assert_eq!(call(server, Some(&self.stranger)).await, Code::PermissionDenied, "somebody else's");
            assert_eq!(call(server, Some(&self.podward)).await, Code::Ok, "Podward's");
        }
    }
}

async fn call(server: &Server, token: Option<&str>) -> Code {
    let mut request: Request<HandleRequest> = Request::new(question(Phase::Release, pod(1)));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    server.handle(request).await.err().map_or(Code::Ok, |status| status.code())
}

/// The API server as seen from this machine: address and CA.
fn cluster(bed: &TestCluster, files: &Files) -> Value {
    let config = Kubeconfig::read_from(bed.kubeconfig()).unwrap();
    let cluster = config.clusters[0].cluster.as_ref().unwrap();
    files.write("api-ca.crt", bed.ca_pem());
    json!({"server": cluster.server, "certificate-authority": files.path("api-ca.crt")})
}

async fn account(client: &Client, namespace: &str, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces.get_opt(namespace).await.unwrap().is_none() {
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
    }
    let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    accounts.create(&PostParams::default(), &object).await.unwrap();
}

async fn token(client: &Client, namespace: &str, name: &str, audience: Option<&str>) -> String {
    let audiences = audience.into_iter().map(ToOwned::to_owned).collect();
    let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// Makes the objects of a file in `deploy/examples`.
async fn apply(client: &Client, file: &str) {
    let path: &Path = &workspace_dir().join("deploy/examples").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    for object in serde_saphyr::from_multiple::<Value>(&text).unwrap().into_iter().filter(Value::is_object) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}
