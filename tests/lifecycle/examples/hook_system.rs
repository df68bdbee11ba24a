//! An example that runs beside Podward and is registered with it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::DeleteParams,
    runtime::{WatchStreamExt, watcher},
};
use podward_api::LifecycleHook;
use podward_e2e::{Fixture, HookAuthor};
use podward_images::build_program;
use podward_support::{Cluster, PythonExamples, ServiceCommand, ServiceKind, ServiceProcess, WAIT, within};
use serde_json::json;
use tokio::sync::Mutex;

use super::balancer::Balancer;

const PODWARD: &str = "system:serviceaccount:podward-system:lifecycle-controller";

/// The examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Example {
    RustServer,
    PythonServer,
    PythonAttached,
}

/// A running example.
pub(super) struct HookSystem {
    /// The name of its hook, which is that of the test's namespace.
    name: String,
    hooks: Api<LifecycleHook>,
    balancer: Balancer,
    account: HookAuthor,
    process: Mutex<ServiceProcess>,
}

impl HookSystem {
    /// The label of the pods that the hook selects. Its value is the test's namespace.
    pub(super) const LABEL: &'static str = "example";

    pub(super) async fn start(fixture: &Fixture, example: Example) -> Result<Self> {
        let cluster = fixture.cluster();
        let name = fixture.namespace().to_owned();
        let dir = cluster.dir().join(&name);
        std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        let account = HookAuthor::make(fixture.client(), &name).await?;
        let balancer = Balancer { backends: dir.join("backends.json"), report: dir.join("report.json") };
        let podward = fixture.podward()?;
        let controller = match podward.controller_service() {
            Some(service) => service,
            None => {
                let controllers = podward.services(ServiceKind::LifecycleController);
                controllers.first().context("there is no lifecycle-controller")?.serves_at()?.to_string()
            }
        };
        let files = ExampleFiles { dir: &dir };
        let ca = files.write("ca.crt", &cluster.server_ca())?;
        let mut args = ExampleArgs::default();
        args.add("--hook-name", &name).add("--pod-label", format!("{}={name}", Self::LABEL));
        args.add("--backends", balancer.backends.display()).add("--report", balancer.report.display());
        args.add("--podward-ca", files.write("podward-ca.crt", &podward.trust().await?.ca)?);
        args.add("--token-file", files.write("token", &account.token(Some("podward")).await?)?);
        args.add(
            "--podward",
            if example == Example::RustServer { format!("https://{controller}") } else { controller },
        );
        if example == Example::PythonAttached {
            args.flag("--register");
        } else {
            let bind = cluster.free_address().await?;
            let pem = cluster.server_certificate(&[&bind.ip().to_string()])?;
            args.add("--bind", bind).add("--url", format!("https://{bind}")).add("--ca", &ca);
            args.add("--tls-cert", files.write("tls.crt", &pem.cert)?);
            args.add("--tls-key", files.write("tls.key", &pem.key)?);
            args.add("--caller", PODWARD);
        }
        let (program, first) = program(example, &files, &account, cluster, &mut args).await?;
        let args = first.into_iter().chain(args.0).collect();
        let mut command = ServiceCommand { name: name.clone(), program, args };
        if podward.controller_service().is_some() {
            command = with_names_of_services(fixture, &files, command).await?;
        }
        let process = cluster.spawn(command).await?;
        Ok(Self { name, hooks: Api::all(fixture.client()), balancer, account, process: Mutex::new(process) })
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Waits until Podward reports that it reaches the hook.
    pub(super) async fn until_reachable(&self) -> Result<()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut versions = std::pin::pin!(watcher(self.hooks.clone(), config).applied_objects());
        let what = || format!("LifecycleHook {} to be reachable; {}", self.name, self.diagnostics());
        within(WAIT, what, async {
            while let Some(hook) = versions.try_next().await.context("watch the hook")? {
                let conditions = hook.status.map(|status| status.conditions).unwrap_or_default();
                let is = |condition: &str| {
                    conditions.iter().any(|one| one.type_ == condition && one.status == "True")
                };
                if is("Accepted") && is("Reachable") {
                    return Ok(());
                }
            }
            anyhow::bail!("the watch has ended")
        })
        .await
    }

    /// Stops the example and removes the hook and its rights.
    pub(super) async fn end(&self) -> Result<()> {
        let stopped = self.process.lock().await.stop().await;
        let deleted = self.hooks.delete(&self.name, &DeleteParams::default()).await;
        self.account.remove().await?;
        deleted.with_context(|| format!("delete LifecycleHook {}", self.name))?;
        stopped
    }

    /// Returns the end of its log.
    pub(super) fn diagnostics(&self) -> String {
        match self.process.try_lock() {
            Ok(process) => format!("the example's log:\n{}", process.log_tail(20)),
            Err(_) => String::new(),
        }
    }
}

/// Returns the same command with the pods' name server in place of the machine's.
async fn with_names_of_services(
    fixture: &Fixture,
    files: &ExampleFiles<'_>,
    command: ServiceCommand,
) -> Result<ServiceCommand> {
    let services: Api<Service> = Api::namespaced(fixture.client(), "kube-system");
    let server = services.get("kube-dns").await.context("read the Service of the name server")?;
    let server = server.spec.and_then(|spec| spec.cluster_ip).context("it has no address")?;
    let search = "search svc.cluster.local cluster.local\noptions ndots:5";
    let file = files.write("resolv.conf", &format!("nameserver {server}\n{search}\n"))?;
    // The shell replaces itself with the program, so that the program gets the signals.
    let script = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
    let first = ["--mount", "sh", "-c", script, &file].map(ToOwned::to_owned);
    let args = first.into_iter().chain([command.program.display().to_string()]).chain(command.args);
    Ok(ServiceCommand { name: command.name, program: PathBuf::from("unshare"), args: args.collect() })
}

/// Returns the program and its leading arguments.
async fn program(
    example: Example,
    files: &ExampleFiles<'_>,
    account: &HookAuthor,
    cluster: &Cluster,
    args: &mut ExampleArgs,
) -> Result<(PathBuf, Vec<String>)> {
    let test_cluster = cluster.test_cluster();
    ensure!(
        example == Example::PythonAttached || test_cluster.is_some(),
        "the API server's address is known for test clusters only; on a cluster of your own run `cargo test -p example-hook-server`"
    );
    let (api, api_ca) = test_cluster
        .map(|test_cluster| (test_cluster.api_url(), test_cluster.ca_pem().to_owned()))
        .unwrap_or_default();
    let api_ca = files.write("api-ca.crt", &api_ca)?;
    let api_token = files.write("api-token", &account.token(None).await?)?;
    if example == Example::RustServer {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test cluster",
            "clusters": [{"name": "test cluster", "cluster": {"server": api, "certificate-authority": api_ca}}],
            "users": [{"name": "example", "user": {"tokenFile": api_token}}],
            "contexts": [{"name": "test cluster", "context": {"cluster": "test cluster", "user": "example"}}],
        });
        let kubeconfig = files.write("kubeconfig", &kubeconfig.to_string())?;
        let program = build_program("example-hook-server", "dev").await.context("build the example")?;
        let first = vec![format!("KUBECONFIG={kubeconfig}"), program.display().to_string()];
        return Ok((PathBuf::from("/usr/bin/env"), first));
    }
    let script = if example == Example::PythonServer {
        args.add("--api-server", api).add("--api-ca", api_ca).add("--api-token-file", api_token);
        "server.py"
    } else {
        "attach.py"
    };
    Ok(PythonExamples::prepare(Path::new(env!("CARGO_TARGET_TMPDIR"))).await?.command(script))
}

struct ExampleFiles<'a> {
    dir: &'a Path,
}

impl ExampleFiles<'_> {
    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path.display().to_string())
    }
}

#[derive(Default)]
struct ExampleArgs(Vec<String>);

impl ExampleArgs {
    fn flag(&mut self, name: &str) -> &mut Self {
        self.0.push(name.to_owned());
        self
    }

    fn add(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.extend([name.to_owned(), value.to_string()]);
        self
    }
}
