//! The effects of the chart and of `deploy/podward` on a cluster's objects. The control plane has no nodes, so
//! Podward does not run.
#![forbid(unsafe_code)]
// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt, api::PostParams};
use podward_api::LifecycleHook;
use podward_core::webhook_path::{PathSecret, route_of};
use podward_images::{build_program, workspace_dir};
use podward_support::{WAIT, await_condition, within};
use podward_testbed::{Part, Shape, TestCluster, preflight};
use serde_json::{Value, json};

const NAMESPACE: &str = "podward-system";
const CRD: &str = "lifecyclehooks.podward.io";
const CHART: &str = "charts/podward";
/// The values of every release: the images are not pulled, because there are no nodes.
const VALUES: [&str; 2] = ["--set", "global.image.registry=registry.example.com"];
/// The field that the older version of the definition lacks.
const NEW_FIELD: &str = "maxConcurrentCalls";

async fn start(name: &str) -> TestCluster {
    let missing = preflight(&[Part::ControlPlane, Part::Helm], false);
    assert!(missing.is_empty(), "{missing:?}");
    build_program("podward-testbed", "dev").await.unwrap();
    TestCluster::builder(Shape::ControlPlane).name(name).start().await.unwrap()
}

fn run(test_cluster: &TestCluster, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(test_cluster.tools().bin(program));
    command.current_dir(workspace_dir()).env("KUBECONFIG", test_cluster.kubeconfig());
    // As documented: the objects name their namespaces, and kubectl refuses another one.
    if arguments[0] != "apply" {
        command.args(["--namespace", NAMESPACE]);
    }
    command.args(arguments).output().unwrap()
}

/// Runs the command and returns its output. It must succeed.
fn does(test_cluster: &TestCluster, program: &str, arguments: &[&str]) -> String {
    let output = run(test_cluster, program, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the command of `docs/guides/installing.md` that begins with `start`.
fn documented(start: &str) -> String {
    let page = fs::read_to_string(workspace_dir().join("docs/guides/installing.md")).unwrap();
    page.lines().find(|line| line.starts_with(start)).unwrap().to_owned()
}

/// Runs a command line with the tools of the test cluster on the path. It must succeed.
fn shell(test_cluster: &TestCluster, line: &str) {
    let tools = test_cluster.tools().bin("kubectl").parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
    let mut command = Command::new("sh");
    command.current_dir(workspace_dir()).env("KUBECONFIG", test_cluster.kubeconfig());
    command.args(["-c", line]).env("PATH", std::env::join_paths(folders).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs Helm without hooks and without waiting for pods.
fn helm(test_cluster: &TestCluster, arguments: &[&str]) -> Output {
    let values: &[&str] = if arguments[0] == "uninstall" { &[] } else { &VALUES };
    run(test_cluster, "helm", &[arguments, &["--no-hooks"], values].concat())
}

fn helm_does(test_cluster: &TestCluster, arguments: &[&str]) {
    let output = helm(test_cluster, arguments);
    assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_the_files_and_leaves_the_authority_alone() {
    let test_cluster = start("applied").await;
    shell(&test_cluster, &documented("kubectl kustomize deploy/podward | sed "));
    let images = "jsonpath={.items[*].spec.template.spec.containers[*].image}";
    let images = does(&test_cluster, "kubectl", &["get", "deployments", "-o", images]);
    assert!(images.split(' ').all(|image| image.starts_with("registry.example.com/podward/")), "{images}");
    does(&test_cluster, "kubectl", &["apply", "-k", "deploy/podward"]);
    let deployments = does(&test_cluster, "kubectl", &["get", "deployments", "-o", "name"]);
    assert_eq!(deployments.lines().count(), 4, "{deployments}");
    let enforced = does(&test_cluster, "kubectl", &["get", "namespace", NAMESPACE, "-o", "yaml"]);
    assert!(enforced.contains("pod-security.kubernetes.io/enforce: restricted"), "{enforced}");

    // The lifecycle-controller does this when it has created the certificates and the secret of the paths.
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(test_cluster.client());
    let mut found = mutating.get("podward-mutating").await.unwrap();
    let authority = ByteString(test_cluster.ca_pem().as_bytes().to_vec());
    for webhook in found.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(authority.clone());
        let (route, service) = (route_of(&webhook.name).unwrap(), webhook.client_config.service.as_mut());
        let path = &mut service.unwrap().path;
        assert_eq!(*path, None, "the files set the path of {}", webhook.name);
        *path = Some(PathSecret::of_random([7; 32]).path(route));
    }
    let told = mutating.replace("podward-mutating", &PostParams::default(), &found).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(test_cluster.client());
    let untold = validating.get("podward-validating").await.unwrap();

    does(&test_cluster, "kubectl", &["apply", "--dry-run=server", "-k", "deploy/podward"]);
    let again = does(&test_cluster, "kubectl", &["apply", "-k", "deploy/podward"]);
    // kubectl always sends the whole selector of a PodDisruptionBudget again, and reports it as configured.
    let is_news = |line: &&str| !line.ends_with(" unchanged") && !line.starts_with("poddisruptionbudget.");
    let changed: Vec<_> = again.lines().filter(is_news).collect();
    assert_eq!(changed, [""; 0]);
    assert_eq!(mutating.get("podward-mutating").await.unwrap().webhooks, told.webhooks);
    assert_eq!(validating.get("podward-validating").await.unwrap().webhooks, untold.webhooks);
    test_cluster.down().await.unwrap();
}

/// Copies a folder of the workspace into `folder`.
fn copy(from: &str, folder: &Path) {
    let mut command = Command::new("cp");
    command.args(["--recursive", "--dereference"]).arg(workspace_dir().join(from)).arg(folder);
    assert!(command.status().unwrap().success());
}

#[test]
fn kustomize_puts_other_images_in() {
    let missing = preflight(&[Part::ControlPlane], false);
    assert!(missing.is_empty(), "{missing:?}");
    // Beside a copy of the files, as in a user's own repository.
    let folder = tempfile::tempdir().unwrap();
    for part in ["deploy/podward", "deploy/crds"] {
        copy(part, folder.path());
    }
    let image = "registry.example.com/ours/mutating-webhook";
    let invalid = "registry.invalid/podward/mutating-webhook";
    let own = json!({"resources": ["podward"], "images": [{"name": invalid, "newName": image}]});
    fs::write(folder.path().join("kustomization.yaml"), own.to_string()).unwrap();
    let kubectl = podward_testbed::Tools::cached().unwrap().bin("kubectl");
    let output = Command::new(kubectl).arg("kustomize").arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rendered = String::from_utf8(output.stdout).unwrap();
    let images: Vec<&str> = rendered.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    assert_eq!(images.len(), 4, "{images:?}");
    assert_eq!(
        images.iter().filter(|found| found.starts_with(&format!("{image}:"))).count(),
        1,
        "{images:?}"
    );
}

/// Writes the chart of an older version, which lacks a field of hooks.
fn older_chart(folder: &Path) {
    copy(CHART, folder);
    let file = folder.join("podward/files/crds").join(format!("{CRD}.yaml"));
    let mut definition: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(spec["properties"].as_object_mut().unwrap().remove(NEW_FIELD).is_some());
    fs::write(file, definition.to_string()).unwrap();
}

fn spec_of(definition: &CustomResourceDefinition) -> Value {
    let definition = serde_json::to_value(definition).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone()
}

/// Writes 7 into the field until the API server keeps it, because it applies a changed definition with a delay.
async fn until_it_is_kept(hooks: &Api<LifecycleHook>) {
    let kept = async {
        loop {
            let mut hook = hooks.get("balancer").await.unwrap();
            hook.spec.max_concurrent_calls = 7;
            let replaced = hooks.replace("balancer", &PostParams::default(), &hook).await.unwrap();
            if replaced.spec.max_concurrent_calls == 7 {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(WAIT, || "the API server keeping the new field".to_owned(), kept).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_brings_the_definition_up_to_date_and_an_uninstall_keeps_it() {
    let test_cluster = start("definition").await;
    let folder = tempfile::tempdir().unwrap();
    older_chart(folder.path());
    let older = folder.path().join("podward");
    helm_does(&test_cluster, &["install", "podward", older.to_str().unwrap(), "--create-namespace"]);

    let definitions: Api<CustomResourceDefinition> = Api::all(test_cluster.client());
    let established = kube::runtime::wait::conditions::is_crd_established();
    within(WAIT, || "the definition is served".to_owned(), async {
        Ok(await_condition(definitions.clone(), CRD, established).await.unwrap())
    })
    .await
    .unwrap();
    let first = definitions.get(CRD).await.unwrap();
    assert!(spec_of(&first).get(NEW_FIELD).is_none());
    let hooks: Api<LifecycleHook> = Api::all(test_cluster.client());
    let hook = serde_json::from_value(json!({
        "apiVersion": "podward.io/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": "balancer"},
        "spec": {"attachment": {}, "phases": ["Prepare"], "deadlineSeconds": 77, NEW_FIELD: 7},
    }));
    let made = hooks.create(&PostParams::default(), &hook.unwrap()).await.unwrap();
    let is_same = |hook: &LifecycleHook| hook.uid() == made.uid() && hook.spec.deadline_seconds == 77;
    // The older version does not know the field and drops it.
    let stored: Value = serde_json::from_str(&does(
        &test_cluster,
        "kubectl",
        &["get", "--raw", "/apis/podward.io/v1alpha1/lifecyclehooks/balancer"],
    ))
    .unwrap();
    assert!(stored["spec"].get(NEW_FIELD).is_none(), "{stored}");

    helm_does(&test_cluster, &["upgrade", "podward", CHART]);
    let upgraded = definitions.get(CRD).await.unwrap();
    assert_eq!(upgraded.uid(), first.uid());
    assert!(spec_of(&upgraded).get(NEW_FIELD).is_some());
    assert!(is_same(&hooks.get("balancer").await.unwrap()));
    until_it_is_kept(&hooks).await;

    helm_does(&test_cluster, &["uninstall", "podward"]);
    assert_eq!(does(&test_cluster, "kubectl", &["get", "deployments", "-o", "name"]), "");
    assert_eq!(definitions.get(CRD).await.unwrap().uid(), first.uid());
    assert!(is_same(&hooks.get("balancer").await.unwrap()));

    // The next release takes over the definition, and upgrades it like its own.
    helm_does(&test_cluster, &["install", "podward", older.to_str().unwrap()]);
    assert!(spec_of(&definitions.get(CRD).await.unwrap()).get(NEW_FIELD).is_none());
    helm_does(&test_cluster, &["upgrade", "podward", CHART]);
    let last = definitions.get(CRD).await.unwrap();
    assert_eq!(last.uid(), first.uid());
    assert_eq!(last.spec, upgraded.spec);
    let hook = hooks.get("balancer").await.unwrap();
    assert!(is_same(&hook), "{hook:?}");

    // A release with another name is rejected, unless it may take over objects.
    helm_does(&test_cluster, &["uninstall", "podward"]);
    let refused = helm(&test_cluster, &["install", "another", CHART]);
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("invalid ownership metadata"), "{words}");
    helm_does(&test_cluster, &["install", "another", CHART, "--take-ownership"]);
    assert!(is_same(&hooks.get("balancer").await.unwrap()));
    test_cluster.down().await.unwrap();
}
