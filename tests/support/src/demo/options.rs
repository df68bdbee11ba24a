//! The options of the demo.

use std::{net::IpAddr, path::PathBuf};

use podward_images::DemoImages;
use podward_testbed::ProxyMode;

use super::act::Act;
#[cfg(doc)]
use super::entry::DemoEntry;

/// The options of the demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Keep everything running at the end.
    pub keep: bool,
    /// The file to which the [`DemoEntry`]s are written as JSON.
    pub json: Option<PathBuf>,
    /// The folder for pictures of the results, of the trace of a pod and of the dashboard.
    pub pictures: Option<PathBuf>,
    /// The kubeconfig of an existing cluster to use instead of a test cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The address at which the API server of an existing cluster reaches this machine.
    pub address: Option<IpAddr>,
    /// The mode of kube-proxy in a test cluster.
    pub proxy_mode: ProxyMode,
    /// The number of real nodes of a test cluster. With several, clients run on each node, and there are two pods on
    /// each, so that clients can use the node ports as a load balancer does, with external traffic policy Local. In a
    /// scale-in there are no such clients, because it may take all pods of a node.
    pub nodes: usize,
    /// Install the node-agent on a test cluster.
    pub node_agent: bool,
    /// The cargo profile of the services, the demo server and its client.
    pub profile: String,
    /// The images between which an update switches.
    pub images: DemoImages,
    /// The acts to run. All if empty.
    pub acts: Vec<Act>,
    /// The number of runs of each act with Podward.
    pub runs: usize,
    /// Skip the acts without Podward.
    pub no_stock: bool,
    /// Skip the acts with Podward.
    pub no_podward: bool,
    /// The request rate per second, for each kind of connection.
    pub rate: u32,
}

impl Demo {
    /// Returns whether the act is to be run.
    pub(super) fn includes(&self, act: Act) -> bool {
        self.acts.is_empty() || self.acts.contains(&act)
    }
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            keep: false,
            json: None,
            pictures: None,
            kubeconfig: None,
            address: None,
            proxy_mode: ProxyMode::default(),
            nodes: 1,
            node_agent: false,
            profile: "bench-lite".to_owned(),
            images: DemoImages::default(),
            acts: Vec::new(),
            runs: 1,
            no_stock: false,
            no_podward: false,
            rate: 300,
        }
    }
}
