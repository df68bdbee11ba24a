//! Starts the components of a cluster, in parallel where possible, and waits until they are healthy.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node, ServiceAccount},
};
use kube::Api;
use tokio::time::sleep;

use crate::{
    components::{
        CLUSTER_DOMAIN, Component, DNS_IP,
        control_plane::{self, ApiServer},
        dns, node, simulated,
    },
    error::TestClusterError,
    node_number::NodeNumber,
    probe::{Health, Prober},
    process::Process,
    settings::ClusterSettings,
    shape::Shape,
    test_cluster::{TAIL_LINES, TestCluster, died},
};

/// The time that one component may take to be ready on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);
/// The interval of the checks.
const INTERVAL: Duration = Duration::from_millis(25);

/// Starts all components of the shape.
pub(crate) async fn components(
    cluster: &TestCluster,
    settings: &ClusterSettings,
) -> Result<(), TestClusterError> {
    let starter = Starter::new(cluster, Watched::Everything)?;
    tokio::try_join!(starter.api(settings), starter.runtime(settings))?;
    tokio::try_join!(starter.controllers(), starter.nodes(settings), starter.dns(settings))?;
    Ok(())
}

impl TestCluster {
    /// Starts a stopped component again and waits until it is healthy. The new process replaces the stopped one.
    pub async fn start_again(&self, name: &str) -> Result<Process, TestClusterError> {
        let unknown = || TestClusterError::Name(format!("this process has started no component {name:?}"));
        let (_, component) = self.running(name).ok_or_else(unknown)?;
        let starter = Starter::new(self, Watched::Blamed)?;
        let process = self.spawn_on(component.node, component.command.clone()).await?;
        {
            let mut components = self.components.lock();
            components.retain(|(ended, _)| ended.name != process.name);
            components.push((process.clone(), component.clone()));
        }
        starter.healthy(&(process.clone(), component)).await?;
        Ok(process)
    }

    /// Waits until a process that was started again is healthy. It takes the place of the one with the same name.
    pub(crate) async fn started_again(
        &self,
        process: &Process,
        health: &Health,
    ) -> Result<(), TestClusterError> {
        for (known, _) in self.components.lock().iter_mut().filter(|(known, _)| known.name == process.name) {
            *known = process.clone();
        }
        Starter::new(self, Watched::Blamed)?.answers(process, health).await
    }
}

/// The processes whose end makes waiting for another one useless.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// All components, while the cluster starts.
    Everything,
    /// Only the one that is waited for: others may have been stopped on purpose.
    Blamed,
}

struct Starter<'a> {
    cluster: &'a TestCluster,
    prober: Prober,
    since: Instant,
    watched: Watched,
}

impl<'a> Starter<'a> {
    fn new(cluster: &'a TestCluster, watched: Watched) -> Result<Self, TestClusterError> {
        let prober = Prober::new(&cluster.layout.pki())?;
        Ok(Self { cluster, prober, since: Instant::now(), watched })
    }

    async fn api(&self, settings: &ClusterSettings) -> Result<(), TestClusterError> {
        let audit_log = settings.audit_log.then_some(&self.cluster.record.logs);
        let context = self.cluster.context();
        let mut launched = vec![self.launch(control_plane::etcd(context)).await?];
        launched.push(self.launch(control_plane::api_server(context, ApiServer::First, audit_log)?).await?);
        if settings.api_servers > 1 {
            let second = control_plane::api_server(context, ApiServer::Second, audit_log)?;
            launched.push(self.launch(second).await?);
            launched.push(self.launch(control_plane::api_proxy(context)?).await?);
        }
        for component in &launched {
            self.healthy(component).await?;
        }
        Ok(())
    }

    async fn controllers(&self) -> Result<(), TestClusterError> {
        let context = self.cluster.context();
        let (manager, scheduler) = tokio::try_join!(
            self.launch(control_plane::controller_manager(context)),
            self.launch(control_plane::scheduler(context))
        )?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client(), "default");
        let account = "the service account of namespace default";
        tokio::try_join!(
            self.healthy(&manager),
            self.healthy(&scheduler),
            self.until(account, Some(&manager.0), async || accounts
                .get_opt("default")
                .await
                .is_ok_and(|a| a.is_some()))
        )?;
        Ok(())
    }

    /// Starts the container runtimes and imports their images. Neither needs the API server.
    async fn runtime(&self, settings: &ClusterSettings) -> Result<(), TestClusterError> {
        if settings.shape != Shape::Node {
            return Ok(());
        }
        let starting = self.cluster.numbers().into_iter().map(async |node| {
            let containerd = self.launch(node::containerd(self.cluster.context(), node)?).await?;
            self.healthy(&containerd).await
        });
        try_join_all(starting).await?;
        self.cluster.import_image(&node::sandbox(self.cluster.context())).await?;
        if settings.dns {
            self.cluster.import_image(&dns::image(self.cluster.context())).await?;
        }
        for image in &settings.images {
            self.cluster.import_image(image).await?;
        }
        Ok(())
    }

    async fn nodes(&self, settings: &ClusterSettings) -> Result<(), TestClusterError> {
        let context = self.cluster.context();
        match settings.shape {
            Shape::ControlPlane => Ok(()),
            Shape::Simulated => {
                let kwok = self.launch(simulated::kwok(context)?).await?;
                simulated::create_nodes(self.cluster.client(), settings.simulated_nodes).await?;
                self.healthy(&kwok).await?;
                for name in (0..settings.simulated_nodes).map(simulated::node_name) {
                    self.node_ready(&name, &kwok.0).await?;
                }
                Ok(())
            }
            Shape::Node => {
                let starting = self.cluster.numbers().into_iter().map(|node| self.real_node(node, settings));
                try_join_all(starting).await.map(drop)
            }
        }
    }

    async fn real_node(&self, node: NodeNumber, settings: &ClusterSettings) -> Result<(), TestClusterError> {
        let (context, name) = (self.cluster.context(), node.name());
        let own = settings.node_settings.get(&name).cloned().unwrap_or_default();
        let (kubelet, proxy) = tokio::try_join!(
            self.launch(node::kubelet(context, node, &own, settings.dns)?),
            self.launch(node::kube_proxy(context, node, settings.proxy_mode)?)
        )?;
        tokio::try_join!(self.healthy(&kubelet), self.healthy(&proxy))?;
        self.node_ready(&name, &kubelet.0).await
    }

    async fn node_ready(&self, name: &str, kubelet: &Process) -> Result<(), TestClusterError> {
        let nodes: Api<Node> = Api::all(self.cluster.client());
        let ready = async || nodes.get_opt(name).await.ok().flatten().is_some_and(|node| is_ready(&node));
        self.until(format!("node {name}"), Some(kubelet), ready).await
    }

    /// Creates the DNS before the node exists, so that it starts as early as possible.
    async fn dns(&self, settings: &ClusterSettings) -> Result<(), TestClusterError> {
        if !settings.dns {
            return Ok(());
        }
        let client = self.cluster.client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let there = async || namespaces.get_opt(dns::NAMESPACE).await.is_ok_and(|found| found.is_some());
        self.until(format!("namespace {}", dns::NAMESPACE), None, there).await?;
        dns::create(&client).await?;

        let deployments: Api<Deployment> = Api::namespaced(client, dns::NAMESPACE);
        let available = async || {
            let deployment = deployments.get_opt(dns::NAME).await.ok().flatten();
            deployment.and_then(|d| d.status?.available_replicas).is_some_and(|count| count > 0)
        };
        self.until("CoreDNS", None, available).await?;
        let (at, name) = ((DNS_IP, 53).into(), format!("kubernetes.default.svc.{CLUSTER_DOMAIN}"));
        let control = &self.cluster.control;
        self.until("the Service of CoreDNS", None, async || Prober::resolves(control, at, &name).await).await
    }

    async fn launch(&self, component: Component) -> Result<(Process, Component), TestClusterError> {
        let process = self.cluster.spawn_on(component.node, component.command.clone()).await?;
        self.cluster.components.lock().push((process.clone(), component.clone()));
        Ok((process, component))
    }

    async fn healthy(&self, (process, component): &(Process, Component)) -> Result<(), TestClusterError> {
        self.answers(process, &component.health).await
    }

    async fn answers(&self, process: &Process, health: &Health) -> Result<(), TestClusterError> {
        let answers = async || self.prober.healthy(&process.control, health).await;
        self.until(&process.name, Some(process), answers).await
    }

    /// Waits for a condition. Fails at once if a watched process has ended, because then the condition cannot become
    /// true.
    async fn until<F: Future<Output = bool>>(
        &self,
        what: impl fmt::Display,
        blame: Option<&Process>,
        ready: impl Fn() -> F,
    ) -> Result<(), TestClusterError> {
        let deadline = Instant::now() + TIMEOUT;
        while !ready().await {
            let running: Vec<Process> = match self.watched {
                Watched::Everything => {
                    self.cluster.components.lock().iter().map(|(process, _)| process.clone()).collect()
                }
                Watched::Blamed => blame.cloned().into_iter().collect(),
            };
            for process in running {
                if let Some(exit) = process.try_exit()? {
                    return Err(died(&process, exit));
                }
            }
            if Instant::now() >= deadline {
                let tail = blame.map(|process| {
                    let (log, lines) = (process.log.display(), process.log_tail(TAIL_LINES));
                    format!("; that of {} ({log}) ends:\n{lines}", process.name)
                });
                let logs = self.cluster.record.logs.clone();
                let (what, seconds) = (what.to_string(), TIMEOUT.as_secs());
                return Err(TestClusterError::NotReady {
                    what,
                    seconds,
                    logs,
                    tail: tail.unwrap_or_default(),
                });
            }
            sleep(INTERVAL).await;
        }
        tracing::info!(cluster = self.cluster.id(), ms = self.since.elapsed().as_millis(), "{what} is ready");
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
