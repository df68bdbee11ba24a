//! Reads the metrics of kube-proxies, while somebody waits for what they say.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::DATE;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use podward_core::UnixNanos;
use tokio::sync::Semaphore;

use crate::clock::after;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::proxy::{Failure, Proxy, Reading, TakenIn};
use crate::verdict::OneNode;
use crate::world::{Change, Family};

/// A node's proxy is read at most this often.
const PAUSE: Duration = Duration::from_millis(100);
/// And at most this often while it can't be read.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long it may take with the answer: longer than a connection alone, so that what hangs is told from what isn't there.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long it is read on after the last who wanted it.
const WANTED: Duration = Duration::from_secs(1);
/// Proxies that are read at a time.
const AT_ONCE: usize = 32;
/// An answer is at most so long: that of a node with 10,000 Services has 0.2 MB.
const LONGEST_ANSWER: usize = 8 << 20;

/// See the module.
pub(crate) struct Scraper {
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
    nodes: Mutex<HashMap<Arc<str>, Entry>>,
    places: Semaphore,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
}

struct Entry {
    proxy: Proxy,
    address: Option<IpAddr>,
    wanted: UnixNanos,
    is_read: bool,
}

impl Scraper {
    /// Reads from `url`, in which `{node_ip}` stands for a node's address.
    pub(crate) fn new(url: String, hub: Arc<Hub>, metrics: Arc<Metrics>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(10)).build(connector);
        let (nodes, places) = (Mutex::default(), Semaphore::new(AT_ONCE));
        Self { url, client, nodes, places, hub, metrics }
    }

    /// What is known of all nodes about changes of these families. Those that are not known to have them are read from now on.
    pub(crate) fn about(self: &Arc<Self>, changed: &[Option<Change>; Family::COUNT]) -> Vec<OneNode> {
        let nodes: Vec<_> = {
            let world = self.hub.world.lock();
            world.nodes().map(|(name, node)| (Arc::clone(name), node.clone())).collect()
        };
        let now = self.hub.clock.now();
        let mut entries = self.nodes.lock();
        if entries.len() > nodes.len() {
            let names: HashSet<&Arc<str>> = nodes.iter().map(|(name, _)| name).collect();
            entries.retain(|name, entry| entry.is_read || names.contains(name));
        }
        let mut all = Vec::with_capacity(nodes.len());
        for (name, node) in nodes {
            let has = if node.ready {
                let entry = entries.entry(Arc::clone(&name)).or_insert_with(|| Entry {
                    proxy: Proxy::default(),
                    address: None,
                    wanted: now,
                    is_read: false,
                });
                entry.address = node.address;
                let has = entry.proxy.has(changed);
                if has != TakenIn::Yes {
                    entry.wanted = after(now, WANTED);
                    if !entry.is_read {
                        entry.is_read = true;
                        tokio::spawn(Arc::clone(self).read_while_wanted(Arc::clone(&name)));
                    }
                }
                has
            } else {
                TakenIn::NotYet("not Ready".to_owned())
            };
            all.push(OneNode { name, ready: node.ready, has });
        }
        all
    }

    async fn read_while_wanted(self: Arc<Self>, node: Arc<str>) {
        loop {
            let address = {
                let mut entries = self.nodes.lock();
                let Some(entry) = entries.get_mut(&node) else { return };
                if entry.wanted < self.hub.clock.now() {
                    entry.is_read = false;
                    return;
                }
                entry.address
            };
            let read = self.read(address).await;
            let failed = read.is_err();
            self.metrics.scraped(&node, failed);
            {
                let mut entries = self.nodes.lock();
                let Some(entry) = entries.get_mut(&node) else { return };
                match read {
                    Ok(reading) => entry.proxy.read(reading),
                    Err(failure) => {
                        tracing::debug!(%node, failure.why, "kube-proxy could not be read");
                        entry.proxy.failed(failure);
                    }
                }
            }
            self.hub.changed();
            tokio::time::sleep(if failed { PAUSE_AFTER_FAILURE } else { PAUSE }).await;
        }
    }

    async fn read(&self, address: Option<IpAddr>) -> Result<Reading, Failure> {
        // Never closed.
        let _place = self.places.acquire().await;
        let url = self.url_of(address).map_err(|why| Failure { why, hangs: false })?;
        let asked = self.hub.clock.now();
        let answer = async {
            let response = self.client.get(url.clone()).await.map_err(|error| text_of(&error))?;
            if !response.status().is_success() {
                return Err(format!("it answers {}", response.status()));
            }
            let date =
                response.headers().get(DATE).and_then(|date| date.to_str().ok()).map(ToOwned::to_owned);
            let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
            let body = body.map_err(|error| format!("its answer broke off: {error}"))?.to_bytes();
            let text = String::from_utf8_lossy(&body);
            Reading::parse(&text, date.as_deref(), asked, self.hub.clock.now())
        };
        let read = tokio::time::timeout(PATIENCE, answer).await;
        let hangs = read.is_err();
        read.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
            .map_err(|why| Failure { why: format!("{url}: {why}"), hangs })
    }

    fn url_of(&self, address: Option<IpAddr>) -> Result<hyper::Uri, String> {
        const PLACE: &str = "{node_ip}";
        let address = match address {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            Some(address) => address.to_string(),
            None if self.url.contains(PLACE) => return Err("the node has no InternalIP".to_owned()),
            None => String::new(),
        };
        let url = self.url.replace(PLACE, &address);
        url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))
    }
}

/// An error with its causes, in one line.
pub(crate) fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
