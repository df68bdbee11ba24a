//! The bindings in `docs/registries`: the webhook admits all of them, and each registers a pod in a real server.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use podward_api::discovery_binding::BindingMode;
use podward_api::{DiscoveryBinding, LifecycleHook};
use podward_core::keys;
use podward_discovery::{RegistrySecrets, connect};
use podward_e2e::{Fixture, Test};
use podward_images::workspace_dir;
use podward_registries::{Change, DirectDialer, Instance, Registry, ServiceKey};
use podward_support::{ReachableServer, WAIT, within};
use registry_servers::{
    ConsulServer, ConsulServerOptions, EtcdServer, EurekaServer, InventedServer, NacosServer,
    NacosServerOptions, ZooKeeperServer, ZooKeeperServerOptions,
};
use serde_json::{Value, json};

/// The pages whose bindings register a pod.
const PAGES: [&str; 6] = ["consul", "etcd", "eureka", "http", "nacos", "zookeeper"];
const POLL: Duration = Duration::from_millis(50);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::simulated("registry_pages_are_admitted", admitted),
        Test::simulated("registry_page_of_consul", consul),
        Test::simulated("registry_page_of_etcd", etcd),
        Test::simulated("registry_page_of_eureka", eureka),
        Test::simulated("registry_page_of_http", http),
        Test::simulated("registry_page_of_nacos", nacos),
        Test::simulated("registry_page_of_zookeeper", zookeeper),
    ]
}

/// Returns the documents in the YAML blocks of a page, in the namespace of the test.
fn documents(page: &str, namespace: &str) -> Result<Vec<Value>> {
    let path = workspace_dir().join("docs/registries").join(format!("{page}.md"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let blocks = text.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    let mut found = Vec::new();
    for text in blocks.flat_map(|block| block.split("\n---\n")) {
        let mut document: Value =
            serde_saphyr::from_str(text).with_context(|| format!("{page}.md: parse {text}"))?;
        if document["metadata"]["namespace"] == "shop" {
            document["metadata"]["namespace"] = json!(namespace);
        }
        found.push(document);
    }
    Ok(found)
}

/// Every complete object on the pages is admitted as it is written, and every page with a binding has a test of its own.
async fn admitted(fixture: Arc<Fixture>) -> Result<()> {
    let mut with_bindings = BTreeSet::new();
    for entry in fs::read_dir(workspace_dir().join("docs/registries"))? {
        let name = entry?.file_name().into_string().ok().context("the name of a page")?;
        let page = name.strip_suffix(".md").with_context(|| format!("{name} is not a page"))?;
        for document in documents(page, fixture.namespace())? {
            // The page shows a part of it.
            if document["apiVersion"].as_str().is_some_and(|version| version.starts_with("apps.kruise.io/")) {
                continue;
            }
            if document["kind"] == "DiscoveryBinding" {
                with_bindings.insert(page.to_owned());
            }
            let file = fixture.cluster().dir().join(format!("{}-{page}.json", fixture.namespace()));
            fs::write(&file, document.to_string()).context("write the object")?;
            let path = file.to_str().context("the path of the object")?;
            let applied =
                fixture.kubectl(&["apply", "--server-side", "--dry-run=server", "-f", path]).await?;
            applied.succeeded().with_context(|| format!("{name}: {document}"))?;
        }
    }
    ensure!(with_bindings == PAGES.map(str::to_owned).into(), "pages with bindings: {with_bindings:?}");
    Ok(())
}

async fn consul(fixture: Arc<Fixture>) -> Result<()> {
    let token = "8f6a3f0e-1d1c-4a0e-9c55-0c7a1f1e2d3c";
    let server =
        ConsulServer::start(ConsulServerOptions { token: Some(token.to_owned()), tls: None }).await?;
    register(&fixture, "consul", &server.url(), &[("token", token)]).await
}

async fn etcd(fixture: Arc<Fixture>) -> Result<()> {
    let server = EtcdServer::start(None).await?;
    register(&fixture, "etcd", &server.address(), &[]).await
}

async fn eureka(fixture: Arc<Fixture>) -> Result<()> {
    let server = EurekaServer::start().await?;
    register(&fixture, "eureka", &server.url(), &[]).await
}

async fn http(fixture: Arc<Fixture>) -> Result<()> {
    let server = InventedServer::default();
    register(&fixture, "http", &server.start(None).await?, &[("token", InventedServer::TOKEN)]).await
}

async fn nacos(fixture: Arc<Fixture>) -> Result<()> {
    let password = "sesame-123".to_owned();
    let server = NacosServer::start(NacosServerOptions { password: Some(password.clone()) }).await?;
    register(&fixture, "nacos", &server.url(), &[("username", "nacos"), ("password", &password)]).await
}

async fn zookeeper(fixture: Arc<Fixture>) -> Result<()> {
    let server = ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?;
    register(&fixture, "zookeeper", &server.address(), &[]).await
}

/// Applies the bindings of a page with the address of a real server and the contents of their Secret, one after the other,
/// and registers a pod by each.
async fn register(fixture: &Fixture, page: &str, address: &str, secret: &[(&str, &str)]) -> Result<()> {
    let _reachable = ReachableServer::on_loopback(fixture.cluster(), address).await?;
    for mut document in documents(page, fixture.namespace())? {
        if document["kind"] != "DiscoveryBinding" {
            continue;
        }
        document["spec"]["registry"]["connection"]["addresses"] = json!([address]);
        let binding: DiscoveryBinding = serde_json::from_value(document).context("parse the binding")?;
        let connection = binding.spec.registry.connection.clone().context("no connection")?;
        let mut secrets = RegistrySecrets::default();
        if let Some(name) = &connection.credentials_secret {
            allow_secret(fixture, name, secret).await?;
            let data = secret.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
            secrets.credentials =
                RegistrySecrets::credentials(&data.collect()).map_err(anyhow::Error::msg)?;
        }
        let registry = connect(&connection, secrets, Arc::new(DirectDialer), "spec.registry.connection");
        let registry = registry.map_err(|error| anyhow::anyhow!("{error}"))?;
        register_one(fixture, &binding, &*registry)
            .await
            .with_context(|| format!("DiscoveryBinding {} of {page}.md", binding.name_any()))?;
    }
    Ok(())
}

/// Creates the Secret, and the Role and the RoleBinding of README.md for it.
async fn allow_secret(fixture: &Fixture, name: &str, secret: &[(&str, &str)]) -> Result<()> {
    let mut create = vec!["create", "secret", "generic", name];
    let literals: Vec<String> =
        secret.iter().map(|(key, value)| format!("--from-literal={key}={value}")).collect();
    create.extend(literals.iter().map(String::as_str));
    fixture.kubectl(&create).await?.succeeded()?;
    let documents = documents("README", fixture.namespace())?;
    for kind in ["Role", "RoleBinding"] {
        let mut document =
            documents.iter().find(|it| it["kind"] == kind).with_context(|| format!("no {kind}"))?.clone();
        if kind == "Role" {
            document["rules"][0]["resourceNames"] = json!([name]);
        }
        let file = fixture.cluster().dir().join(format!("{}-{kind}.json", fixture.namespace()));
        fs::write(&file, document.to_string()).context("write the object")?;
        let path = file.to_str().context("the path of the object")?;
        fixture.kubectl(&["apply", "--server-side", "-f", path]).await?.succeeded()?;
    }
    Ok(())
}

async fn register_one(fixture: &Fixture, binding: &DiscoveryBinding, registry: &dyn Registry) -> Result<()> {
    let api: Api<DiscoveryBinding> = Api::namespaced(fixture.client(), fixture.namespace());
    let name = binding.name_any();
    api.create(&PostParams::default(), binding).await.context("create the binding")?;
    let attached = async {
        loop {
            let status = api.get(&name).await?.status.unwrap_or_default();
            if status.conditions.iter().any(|it| it.type_ == "Synchronized" && it.status == "True") {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(WAIT, || "the binding to be synchronized".to_owned(), attached).await?;

    let mut labels = binding.spec.selector.match_labels.clone().unwrap_or_default();
    labels.insert(keys::CONTROL_LABEL.to_owned(), keys::CONTROL_VALUE.to_owned());
    let app = labels.get("app").cloned().context("the binding selects no app")?;
    let pod_name = format!("of-{name}");
    let mut pod = fixture.pod(&pod_name, &json!(labels), &json!({}))?;
    let port: u16 = match &binding.spec.port {
        k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port) => (*port).try_into()?,
        k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(name) => {
            let spec = pod.spec.as_mut().context("a pod without a spec")?;
            spec.containers[0].ports.as_mut().context("no ports")?[0].name = Some(name.clone());
            8080
        }
    };
    let created = fixture.api().create(&PostParams::default(), &pod).await.context("make the pod")?;
    let has_address = |pod: &Pod| address_of(pod).is_some();
    let pod = fixture.feed().until(&pod_name, "it has an address", has_address).await?;
    let host = address_of(&pod).context("no address")?;
    let service = &binding.spec.service;
    let key = ServiceKey {
        namespace: service.namespace.clone(),
        group: service.group.clone(),
        name: service.name.replace("${pod.labels['app']}", &app),
    };
    let uid = created.uid().unwrap_or_default();
    let id = match binding.spec.mode {
        BindingMode::Own => format!("{}.{pod_name}.{uid}.{port}", fixture.namespace()),
        BindingMode::Steer => format!("{pod_name}:{port}"),
    };
    let wanted = Instance {
        id,
        host,
        port,
        cluster: service.cluster.clone(),
        weight: 1.0,
        metadata: [("zone".to_owned(), "b".to_owned())].into(),
        in_service: true,
        may_return: false,
        version: None,
    };
    if binding.spec.mode == BindingMode::Steer {
        // What the application does.
        let written = registry.write(&[Change::Register(key.clone(), wanted.clone())]).await;
        ensure!(written.iter().all(Result::is_ok), "{written:?}");
    }
    fixture.until_available(&pod_name).await?;
    let Some(found) = registry.instance(0, &key, &wanted).await? else {
        bail!("the pod is available, and the registry has no instance of it");
    };
    ensure!(found.in_service && found.host == wanted.host && found.port == port, "{found:?}");
    let owner = found.owner().map(|owner| owner.uid);
    let expected = (binding.spec.mode == BindingMode::Own).then_some(uid);
    ensure!(owner == expected, "{found:?}");

    api.delete(&name, &DeleteParams::default()).await.context("delete the binding")?;
    let gone = async {
        while api.get_opt(&name).await?.is_some() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    within(WAIT, || "the binding to be gone".to_owned(), gone).await?;
    let hooks: Api<LifecycleHook> = Api::all(fixture.client());
    let hook = hooks.get_opt(&format!("{}.{name}", fixture.namespace())).await?;
    ensure!(hook.is_none(), "the hook of the deleted binding is left: pods wait for it");
    let left = registry.instance(0, &key, &wanted).await?;
    ensure!(left.is_some() == (binding.spec.mode == BindingMode::Steer), "after the binding: {left:?}");
    Ok(())
}

fn address_of(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())
}
