//! Starts the components of a bed, in parallel where they don't need each other, and waits until they work.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node, ServiceAccount},
};
use kube::Api;
use tokio::time::sleep;

use crate::{
    bed::{Bed, TAIL_LINES, died},
    builder::BedBuilder,
    components::{CLUSTER_DOMAIN, Component, DNS_IP, NODE_NAME, control_plane, dns, node, simulated},
    error::BedError,
    probe::Prober,
    process::Process,
    shape::Shape,
};

/// How long any one thing may take to be ready on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How often to look.
const INTERVAL: Duration = Duration::from_millis(25);

/// Starts all components that the shape asks for.
pub(crate) async fn components(bed: &Bed, builder: &BedBuilder) -> Result<(), BedError> {
    let starter =
        Starter { bed, prober: Prober::new(bed.control.clone(), &bed.layout.pki())?, since: Instant::now() };
    tokio::try_join!(starter.api(builder), starter.runtime(builder))?;
    tokio::try_join!(starter.controllers(), starter.nodes(builder), starter.dns(builder))?;
    Ok(())
}

/// Starts a component that was ended, in the place of the process that ended.
pub(crate) async fn again(bed: &Bed, component: Component) -> Result<Process, BedError> {
    let starter =
        Starter { bed, prober: Prober::new(bed.control.clone(), &bed.layout.pki())?, since: Instant::now() };
    let process = bed.spawn(component.command.clone()).await?;
    {
        let mut components = bed.components.lock();
        components.retain(|(ended, _)| ended.name != process.name);
        components.push((process.clone(), component.clone()));
    }
    starter.healthy(&(process.clone(), component)).await?;
    Ok(process)
}

struct Starter<'a> {
    bed: &'a Bed,
    prober: Prober,
    since: Instant,
}

impl Starter<'_> {
    async fn api(&self, builder: &BedBuilder) -> Result<(), BedError> {
        let audit_log = builder.audit_log.then(|| self.bed.record.logs.join("audit.json"));
        let context = self.bed.context();
        let etcd = self.launch(control_plane::etcd(context)).await?;
        let api = self.launch(control_plane::api_server(context, audit_log.as_ref())?).await?;
        self.healthy(&etcd).await?;
        self.healthy(&api).await
    }

    async fn controllers(&self) -> Result<(), BedError> {
        let context = self.bed.context();
        let (manager, scheduler) = tokio::try_join!(
            self.launch(control_plane::controller_manager(context)),
            self.launch(control_plane::scheduler(context))
        )?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.bed.client(), "default");
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

    /// The container runtime and its images, which need no API server.
    async fn runtime(&self, builder: &BedBuilder) -> Result<(), BedError> {
        if builder.shape != Shape::Node {
            return Ok(());
        }
        let containerd = self.launch(node::containerd(self.bed.context())?).await?;
        self.healthy(&containerd).await?;
        self.bed.import_image(&node::sandbox(self.bed.context())).await?;
        if builder.dns {
            self.bed.import_image(&dns::image(self.bed.context())).await?;
        }
        for image in &builder.images {
            self.bed.import_image(image).await?;
        }
        Ok(())
    }

    async fn nodes(&self, builder: &BedBuilder) -> Result<(), BedError> {
        let context = self.bed.context();
        let (names, kubelet) = match builder.shape {
            Shape::ControlPlane => return Ok(()),
            Shape::Simulated => {
                let kwok = self.launch(simulated::kwok(context)?).await?;
                simulated::create_nodes(self.bed.client(), builder.simulated_nodes).await?;
                self.healthy(&kwok).await?;
                ((0..builder.simulated_nodes).map(simulated::node_name).collect(), kwok)
            }
            Shape::Node => {
                let (kubelet, proxy) = tokio::try_join!(
                    self.launch(node::kubelet(context, builder.dns)?),
                    self.launch(node::kube_proxy(context, builder.proxy_mode)?)
                )?;
                tokio::try_join!(self.healthy(&kubelet), self.healthy(&proxy))?;
                (vec![NODE_NAME.to_owned()], kubelet)
            }
        };
        let nodes: Api<Node> = Api::all(self.bed.client());
        for name in names {
            let ready =
                async || nodes.get_opt(&name).await.ok().flatten().is_some_and(|node| is_ready(&node));
            self.until(format!("node {name}"), Some(&kubelet.0), ready).await?;
        }
        Ok(())
    }

    /// Created before the node is there, so that it starts as soon as it can.
    async fn dns(&self, builder: &BedBuilder) -> Result<(), BedError> {
        if !builder.dns {
            return Ok(());
        }
        let client = self.bed.client();
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
        self.until("the Service of CoreDNS", None, async || self.prober.resolves(at, &name).await).await
    }

    async fn launch(&self, component: Component) -> Result<(Process, Component), BedError> {
        let process = self.bed.spawn(component.command.clone()).await?;
        self.bed.components.lock().push((process.clone(), component.clone()));
        Ok((process, component))
    }

    async fn healthy(&self, (process, component): &(Process, Component)) -> Result<(), BedError> {
        self.until(&process.name, Some(process), async || self.prober.healthy(&component.health).await).await
    }

    /// Waits for a condition, and fails as soon as a component has ended: then it will not come true.
    async fn until<F: Future<Output = bool>>(
        &self,
        what: impl fmt::Display,
        blame: Option<&Process>,
        ready: impl Fn() -> F,
    ) -> Result<(), BedError> {
        let deadline = Instant::now() + TIMEOUT;
        while !ready().await {
            let running = self.bed.components.lock().clone();
            for (process, _) in running {
                if let Some(exit) = process.try_exit()? {
                    return Err(died(&process, exit));
                }
            }
            if Instant::now() >= deadline {
                let tail = blame.map(|process| {
                    let (log, lines) = (process.log.display(), process.log_tail(TAIL_LINES));
                    format!("; that of {} ({log}) ends:\n{lines}", process.name)
                });
                let logs = self.bed.record.logs.clone();
                let (what, seconds) = (what.to_string(), TIMEOUT.as_secs());
                return Err(BedError::NotReady { what, seconds, logs, tail: tail.unwrap_or_default() });
            }
            sleep(INTERVAL).await;
        }
        tracing::info!(bed = self.bed.id(), ms = self.since.elapsed().as_millis(), "{what} is ready");
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
