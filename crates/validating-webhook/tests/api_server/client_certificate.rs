//! An API server with an `AdmissionConfiguration` presents its client certificate to the webhook, as
//! docs/guides/webhook-authentication.md describes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use podward_core::webhook_path::route_of;
use podward_testbed::{Command, Process};
use serde_json::{Value, json};

use crate::guarded_cluster::{GuardedCluster, PORT, eventually, from, secret};

const NAMESPACE: &str = "podward-system";
/// The common name of the API server's certificate.
const NAME: &str = "kube-apiserver-for-admission";
const OTHER_API: u16 = 7443;

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_sends_reviews_with_its_client_certificate() {
    let mut guarded = GuardedCluster::start("client-certificate").await;
    guarded.create("default", "web-0").await;
    lead_to_the_service(&guarded).await;
    let authority = guarded.cluster.dir().join("client-ca.crt");
    std::fs::write(&authority, guarded.cluster.ca_pem()).unwrap();
    let require =
        |name: &str| [format!("--client-ca={}", authority.display()), format!("--client-name={name}")];

    // The default API server has no certificate.
    guarded.restart_the_webhook(&require(NAME)).await;
    let without = other_api_server(&guarded, "api-without-certificate", &[]).await;
    until_answered(&guarded, "certificate required").await;
    without.stop().await.unwrap();

    let configuration = admission_configuration(&guarded);
    let flag = format!("--admission-control-config-file={}", configuration.display());
    other_api_server(&guarded, "api-with-certificate", &[flag]).await;
    until_answered(&guarded, "held by PodOpsLifecycle").await;

    // The certificate of another client of the same authority.
    guarded.restart_the_webhook(&require("another-name")).await;
    until_answered(&guarded, "access denied").await;
    guarded.down().await;
}

/// Makes a Service for the process, and the webhook configuration lead to it as in an installation.
async fn lead_to_the_service(guarded: &GuardedCluster) {
    let client = guarded.client();
    let service: Service = from(json!({
        "metadata": {"name": "validating-webhook"}, "spec": {"ports": [{"port": 443, "targetPort": PORT}]},
    }));
    Api::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &service).await.unwrap();
    let slice: EndpointSlice = from(json!({
        "metadata": {"name": "validating-webhook-1", "labels": {"kubernetes.io/service-name": "validating-webhook"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [guarded.cluster.node_ip().to_string()]}],
    }));
    Api::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &slice).await.unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let mut configuration = configurations.list(&Default::default()).await.unwrap().items.remove(0);
    for entry in configuration.webhooks.iter_mut().flatten() {
        let path = secret().path(route_of(&entry.name).unwrap());
        entry.client_config = from(json!({
            "service": {"namespace": NAMESPACE, "name": "validating-webhook", "path": path},
            "caBundle": ByteString(guarded.cluster.ca_pem().as_bytes().to_vec()),
        }));
    }
    let name = configuration.metadata.name.unwrap();
    let patch = Patch::Merge(json!({"webhooks": configuration.webhooks}));
    configurations.patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

/// Writes the `AdmissionConfiguration`, and returns its path.
fn admission_configuration(guarded: &GuardedCluster) -> std::path::PathBuf {
    let file = |name: &str, content: String| {
        let path = guarded.cluster.dir().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let pem = guarded.cluster.client_certificate(NAME, &[], false).unwrap();
    let (cert, key) = (file("admission.crt", pem.cert), file("admission.key", pem.key));
    let user = json!({
        "apiVersion": "v1", "kind": "Config",
        "users": [{
            "name": format!("*.{NAMESPACE}.svc"), "user": {"client-certificate": cert, "client-key": key},
        }],
    });
    let user = file("admission-kubeconfig.yaml", user.to_string());
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": user,
        }})
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
    });
    file("admission.yaml", configuration.to_string())
}

/// Starts another API server of the cluster with more `flags`. It reaches Services without kube-proxy.
async fn other_api_server(guarded: &GuardedCluster, name: &str, flags: &[String]) -> Process {
    let mut arguments = flags_of_the_api_server(guarded.cluster.dir());
    arguments.retain(|flag| !flag.starts_with("--secure-port="));
    arguments.push(format!("--secure-port={OTHER_API}"));
    arguments.push("--enable-aggregator-routing=true".to_owned());
    arguments.extend_from_slice(flags);
    let program = guarded.cluster.tools().bin("kube-apiserver");
    let process = guarded.cluster.spawn(Command::new(name, program).args(arguments)).await.unwrap();
    let ready = async || {
        assert!(process.is_running(), "{}", process.log_tail(20));
        answer(guarded, &["get", "--raw", "/readyz"])
    };
    eventually("the other API server is ready", ready, |answer| answer.trim() == "ok").await;
    process
}

/// Returns the flags with which the API server of the cluster in `dir` runs.
fn flags_of_the_api_server(dir: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut commands = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let is_searched = |command: &Vec<u8>| {
        let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
        program.ends_with(b"/kube-apiserver")
            && command.windows(dir.as_os_str().len()).any(|part| part == dir.as_os_str().as_bytes())
    };
    let command = commands.find(is_searched).unwrap();
    let arguments = command.split(|byte| *byte == 0).skip(1).filter(|argument| !argument.is_empty());
    arguments.map(|argument| String::from_utf8(argument.to_vec()).unwrap()).collect()
}

/// Runs kubectl at the other API server, and returns what it says.
fn answer(guarded: &GuardedCluster, arguments: &[&str]) -> String {
    let server = format!("--server=https://{}:{OTHER_API}", guarded.cluster.node_ip());
    let kubectl = guarded.cluster.tools().bin("kubectl");
    let kubeconfig = guarded.cluster.inner_kubeconfig();
    let mut command = guarded.cluster.exec_command([kubectl.as_os_str()]);
    let output = command.arg("--kubeconfig").arg(kubeconfig).arg(server).args(arguments).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Repeats a delete of the pod until its answer contains `text`.
async fn until_answered(guarded: &GuardedCluster, text: &str) {
    let delete = async || answer(guarded, &["delete", "pod", "web-0", "--wait=false"]);
    eventually(text, delete, |answer| answer.contains(text)).await;
    let stored: Value = serde_json::to_value(guarded.pods("default").get("web-0").await.unwrap()).unwrap();
    assert!(stored["metadata"]["deletionTimestamp"].is_null(), "{stored}");
}
