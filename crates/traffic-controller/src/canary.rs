//! Finds out which changes a node's kube-proxy has received, in a cluster with several API servers.
//!
//! The metrics of a kube-proxy say that it has written all that it received. If it watches another API server than this
//! process, whose watches lag, that may not include a change that this process has observed. So after the change this
//! process writes an EndpointSlice of its own, the *canary*, and waits until each node leads to it:
//!
//! - The canary is a Service of type NodePort without a selector. Its only endpoint is a port of the last writer, a new
//!   one for each write. The listener answers with the generation of the write.
//! - kube-proxy receives all EndpointSlices in one watch, those of both address families too, in the order in which
//!   they were stored (`cmd/kube-proxy/app/server.go`). So a node that leads to a generation has received all that was
//!   stored before.
//! - That the rules contain everything received is proven by the metrics, from this moment on: in the mode ipvs the
//!   rules of different Services are not written together, and the first list of a watch has no order.

mod listener;
mod slice;
mod state;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Client;
use parking_lot::Mutex;
use podward_core::UnixNanos;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::index::AddressFamily;
use crate::shared_index::SharedIndex;

use listener::Ports;
use slice::CanarySlice;
use state::CanaryState;

/// The pause between two attempts to reach the canary through the same node.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a write that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const ASK_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of concurrent connections to nodes.
const MAX_CONCURRENT: usize = 32;
/// The maximum length of an answer in bytes.
const MAX_ANSWER: u64 = 64;

/// The canary of the cluster.
pub(crate) struct Canary {
    shared: Arc<SharedIndex>,
    slice: CanarySlice,
    ports: Ports,
    /// The address of this process.
    address: IpAddr,
    state: Mutex<CanaryState>,
    /// Why the last write failed.
    failure: Mutex<Option<String>>,
    needed: Notify,
}

impl Canary {
    /// Returns the canary with the Service `name` in `namespace`. `address` is the address at which nodes reach this
    /// process.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        name: String,
        address: IpAddr,
        shared: Arc<SharedIndex>,
    ) -> Self {
        Self {
            shared,
            slice: CanarySlice::new(client, namespace, name),
            ports: Ports::new(),
            address,
            state: Mutex::default(),
            failure: Mutex::default(),
            needed: Notify::new(),
        }
    }

    /// Starts to find out which nodes have received the changes that were observed until `seen`.
    pub(crate) fn need(&self, seen: UnixNanos) {
        if self.state.lock().need(seen, self.shared.clock.now()) {
            self.needed.notify_one();
        }
    }

    /// Returns since when `node` is known to have received all changes that were observed until `seen`.
    ///
    /// # Errors
    /// Returns why this is not known.
    pub(crate) fn received_at(&self, node: &str, seen: UnixNanos) -> Result<UnixNanos, String> {
        self.state.lock().received_at(node, seen).ok_or_else(|| match &*self.failure.lock() {
            Some(why) => why.clone(),
            None => "the canary was not reached through it".to_owned(),
        })
    }

    /// Writes and asks while a question needs it, until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let work = async {
            let mut node_port = None;
            loop {
                if !self.state.lock().is_needed(self.shared.clock.now()) {
                    node_port = None;
                    self.needed.notified().await;
                }
                let written = self.step(&mut node_port).await;
                let failed = written.is_err();
                *self.failure.lock() = written.err().map(|error| {
                    tracing::warn!(error = format!("{error:#}"), "the canary failed");
                    format!("{error:#}")
                });
                tokio::time::sleep(if failed { RETRY_INTERVAL } else { ASK_INTERVAL }).await;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Writes if a write is due, and asks the nodes that have not received the last write.
    async fn step(&self, node_port: &mut Option<u16>) -> anyhow::Result<()> {
        let port = match *node_port {
            Some(port) => port,
            None => *node_port.insert(self.slice.node_port().await?),
        };
        let now = self.shared.clock.now();
        if self.state.lock().is_write_due(now) {
            let (listener, own_port) = self.ports.listen(self.address).await?;
            let next = |stored| self.state.lock().next_generation(stored);
            if let Some(generation) = self.slice.write(self.address, own_port, next).await? {
                tokio::spawn(listener::answer(listener, generation));
                self.state.lock().add_write(now, generation);
            }
        }
        self.ask_nodes(port).await;
        Ok(())
    }

    async fn ask_nodes(&self, port: u16) {
        let nodes: Vec<(Arc<str>, IpAddr)> = {
            let index = self.shared.index.lock();
            let mut state = self.state.lock();
            state.retain_nodes(|name| index.nodes().any(|(node, _)| **node == *name));
            let family = AddressFamily::of(self.address);
            let asked = index.nodes().filter(|(name, _)| state.is_asked(name));
            asked
                .filter_map(|(name, node)| {
                    let mut addresses = node.addresses.iter();
                    let address = *addresses.find(|address| AddressFamily::of(**address) == family)?;
                    Some((Arc::clone(name), address))
                })
                .collect()
        };
        let asked = nodes.into_iter().map(|(node, address)| async move {
            let answer = ask(SocketAddr::new(address, port)).await;
            (node, answer)
        });
        let mut answers = stream::iter(asked).buffer_unordered(MAX_CONCURRENT);
        while let Some((node, answer)) = answers.next().await {
            let now = self.shared.clock.now();
            if answer.is_some_and(|generation| self.state.lock().add_answer(&node, generation, now)) {
                self.shared.notify_changed();
            }
        }
    }
}

/// Returns the generation that `address` leads to. `None` if there is no answer.
async fn ask(address: SocketAddr) -> Option<u64> {
    let answer = async {
        let stream = TcpStream::connect(address).await.ok()?;
        let mut text = String::new();
        stream.take(MAX_ANSWER).read_to_string(&mut text).await.ok()?;
        listener::generation_of(&text)
    };
    tokio::time::timeout(ASK_TIMEOUT, answer).await.ok()?
}
