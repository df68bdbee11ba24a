//! Clients of a Service, or of a registry. They run in the network of a node, or in a pod where programs cannot run there.

mod pod;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use demo_client::{ClientReport, Connections, LoadReport, RegistryKind};
use hyper::StatusCode;
use podward_testbed::{Command, TestNode};

use self::pod::ClientPod;
use crate::{
    ask,
    cluster::{Cluster, ServiceCommand, ServiceProcess},
    wait::{WAIT, within},
};

/// The interval at which a starting load is queried.
const POLL: Duration = Duration::from_millis(50);
/// The time that a new Service may take until it responds, in seconds.
const AWAIT_FIRST: &str = "30";

/// The options of a load.
#[derive(Clone, Debug)]
pub struct LoadClientOptions {
    /// The path of the program `demo-client`, see [`DemoImages::client`](podward_images::DemoImages::client).
    pub program: PathBuf,
    /// The image that contains the program, for clusters where it runs in a pod.
    pub image: String,
    /// Where the requests go.
    pub targets: LoadTargets,
    /// The real node in whose network the clients run. The default is the first one. Without effect in a pod.
    pub node: Option<String>,
    /// The path of the requests.
    pub path: String,
    /// The kinds of connections. Each kind gets the full rate.
    pub connections: Vec<Connections>,
    /// The request rate per second.
    pub rate: u32,
    /// The time after which a request without a complete response counts as lost.
    pub timeout: Duration,
}

impl LoadClientOptions {
    /// The timeout of usual clients.
    pub const USUAL_TIMEOUT: Duration = Duration::from_secs(5);
    /// A timeout that is longer than a busy machine may stand still. A request that nobody answers is lost all the same:
    /// a connection attempt that is repeated goes to the same pod.
    pub const PATIENT: Duration = Duration::from_secs(20);
}

/// Where the requests of a load go.
#[derive(Clone, Debug)]
pub enum LoadTargets {
    /// To the address and port of a Service.
    Service(SocketAddr),
    /// To several addresses, used in turn, like the nodes behind a load balancer.
    Balanced {
        /// The addresses.
        addresses: Vec<SocketAddr>,
        /// The port at which health checks ask whether an address may get new connections.
        health_port: u16,
    },
    /// To the instances that a registry shows, used in turn.
    Discovered {
        /// The kind of the registry.
        registry: RegistryKind,
        /// The addresses of the registry.
        addresses: Vec<String>,
        /// The name of the service in the registry.
        service: String,
        /// The interval at which clients read the registry, in whole seconds.
        cache: Duration,
        /// The age at which a list is not used any more, in whole seconds: clients wait for the next one. Usual clients
        /// use it nevertheless.
        max_age: Option<Duration>,
    },
}

impl LoadTargets {
    /// Returns the arguments of the load client.
    fn args(&self) -> Vec<String> {
        let several = |name: &str, values: &[String]| {
            values.iter().flat_map(|value| [name.to_owned(), value.clone()]).collect::<Vec<_>>()
        };
        match self {
            Self::Service(address) => several("--target", &[address.to_string()]),
            Self::Balanced { addresses, health_port } => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                [several("--target", &addresses), several("--health-port", &[health_port.to_string()])]
                    .concat()
            }
            Self::Discovered { registry, addresses, service, cache, max_age } => [
                several("--registry", &[registry.to_string()]),
                several("--registry-address", addresses),
                several("--service", std::slice::from_ref(service)),
                several("--cache", &[cache.as_secs().to_string()]),
                several(
                    "--max-age",
                    &max_age.map(|age| age.as_secs().to_string()).into_iter().collect::<Vec<_>>(),
                ),
            ]
            .concat(),
        }
    }
}

/// A running load. It ends when it is stopped, and after ten minutes at the latest.
#[derive(Debug)]
pub struct LoadClient {
    cluster: Cluster,
    rate: u32,
    place: ClientPlace,
}

#[derive(Debug)]
enum ClientPlace {
    Process { process: ServiceProcess, control: SocketAddr },
    Pod(ClientPod),
}

impl LoadClient {
    /// Starts a load and waits until it has run for a second.
    ///
    /// # Errors
    /// Fails if it cannot be started, or the Service sends no good response.
    pub async fn start(cluster: &Cluster, options: LoadClientOptions) -> Result<Self> {
        let mut args = options.targets.args();
        args.extend(["--path".to_owned(), options.path, "--rate".to_owned(), options.rate.to_string()]);
        args.extend(["--await-first".to_owned(), AWAIT_FIRST.to_owned()]);
        args.extend(["--timeout".to_owned(), options.timeout.as_millis().to_string()]);
        args.extend(options.connections.iter().flat_map(|how| ["--connections".to_owned(), how.to_string()]));
        let place = if let Some(test_cluster) = cluster.test_cluster() {
            let mut control = cluster.free_address().await?;
            let node = options.node.as_deref().map(|name| test_cluster.node(name)).transpose()?;
            control.set_ip(node.as_ref().map_or(control.ip(), TestNode::ip));
            args.extend(["--control".to_owned(), control.to_string()]);
            let name = "demo-client".to_owned();
            let process = match node {
                Some(node) => ServiceProcess::TestCluster(
                    node.spawn(Command::new(name, options.program).args(args)).await?,
                ),
                None => cluster.spawn(ServiceCommand { name, program: options.program, args }).await?,
            };
            ClientPlace::Process { process, control }
        } else {
            ClientPlace::Pod(ClientPod::start(&cluster.client(), &options.image, args).await?)
        };
        let mut load = Self { cluster: cluster.clone(), rate: options.rate, place };
        let what = || format!("a load of {} requests a second on {:?}", options.rate, options.targets);
        within(WAIT, what, load.under_way()).await.with_context(|| load.diagnostics())?;
        Ok(load)
    }

    async fn under_way(&mut self) -> Result<()> {
        loop {
            let runs = |load: &LoadReport| load.requests >= u64::from(self.rate);
            // The client does not respond until it listens.
            if self.report().await.is_ok_and(|report| report.loads.iter().all(runs)) {
                return Ok(());
            }
            if let ClientPlace::Process { process, .. } = &mut self.place {
                ensure!(process.is_running(), "the load client ended");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the results so far.
    ///
    /// # Errors
    /// Fails if the client does not respond.
    pub async fn report(&self) -> Result<ClientReport> {
        self.ask("/report").await
    }

    /// Stops the load and returns the results of all its requests.
    ///
    /// # Errors
    /// Fails if the client does not respond.
    pub async fn stop(self) -> Result<ClientReport> {
        let report = within(WAIT, || "the report of a load".to_owned(), self.ask("/stop")).await;
        if let ClientPlace::Pod(pod) = &self.place {
            pod.remove().await?;
        }
        report.with_context(|| self.diagnostics())
    }

    async fn ask(&self, path: &str) -> Result<ClientReport> {
        let text = match &self.place {
            ClientPlace::Process { control, .. } => {
                let (status, text) = ask::get(&self.cluster, *control, path).await?;
                ensure!(status == StatusCode::OK, "the load client answers {status} to {path}");
                text
            }
            ClientPlace::Pod(pod) => pod.ask(path).await?,
        };
        serde_json::from_str(&text).with_context(|| format!("understand the load client's {path}: {text}"))
    }

    fn diagnostics(&self) -> String {
        match &self.place {
            ClientPlace::Process { process, .. } => {
                format!("the load client ({}) says:\n{}", process.log_path().display(), process.log_tail(10))
            }
            ClientPlace::Pod(pod) => format!("the load client is {}", pod.describe()),
        }
    }
}
