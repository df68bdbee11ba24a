//! Reads the metrics of kube-proxies while a question waits for them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper::header::DATE;
use hyper::http::uri::PathAndQuery;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use podward_core::UnixNanos;
use tokio::sync::Semaphore;

use crate::clock::after;
use crate::index::{AddressFamily, EndpointChange};
use crate::metrics::TrafficMetrics;
use crate::proxy::{KubeProxyState, ProxyReading, ProxySettings, ReadFailure, RulesState};
use crate::receipt::Receipt;
use crate::shared_index::SharedIndex;
use crate::verdict::NodeProxy;

/// The pause between two reads of the same kube-proxy.
const READ_INTERVAL: Duration = Duration::from_millis(100);
/// The pause for each kube-proxy that is being read. In a large cluster it limits the reads of all together to 1,000 a
/// second. A kube-proxy that has applied all changes is not read any more.
const READ_INTERVAL_PER_PROXY: Duration = Duration::from_millis(1);
/// The pause after a read that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a read. It is longer than [`CONNECT_TIMEOUT`], to distinguish a kube-proxy that hangs from one that
/// cannot be reached.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a kube-proxy is read after the last question that needed it.
const KEEP_READING: Duration = Duration::from_secs(1);
/// The maximum number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 32;
/// The same for nodes that are not Ready, most of which end with a timeout. They do not delay the others.
const MAX_CONCURRENT_READS_OF_LOST_NODES: usize = 8;
/// The maximum size of a response in bytes. On a node with 10,000 Services it has 0.2 MB.
const MAX_RESPONSE: usize = 8 << 20;

/// The state of each node's kube-proxy, and the HTTP client that reads it.
pub(crate) struct ProxyScraper {
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
    nodes: Mutex<HashMap<Arc<str>, ScrapedProxy>>,
    permits: Semaphore,
    lost_permits: Semaphore,
    shared: Arc<SharedIndex>,
    metrics: Arc<TrafficMetrics>,
}

struct ScrapedProxy {
    proxy: KubeProxyState,
    address: Option<IpAddr>,
    is_ready: bool,
    /// The proxy is read until this time.
    read_until: UnixNanos,
    /// True while a task reads the proxy.
    is_read: bool,
}

/// Returns the pause between two reads of the same kube-proxy when `proxies` are being read.
fn read_interval(proxies: usize) -> Duration {
    READ_INTERVAL.max(READ_INTERVAL_PER_PROXY.saturating_mul(u32::try_from(proxies).unwrap_or(u32::MAX)))
}

impl ProxyScraper {
    /// Returns a scraper that reads from `url`. It replaces `{node_ip}` in `url` by the address of the node.
    pub(crate) fn new(url: String, shared: Arc<SharedIndex>, metrics: Arc<TrafficMetrics>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(10)).build(connector);
        let permits = Semaphore::new(MAX_CONCURRENT_READS);
        let lost_permits = Semaphore::new(MAX_CONCURRENT_READS_OF_LOST_NODES);
        Self { url, client, nodes: Mutex::default(), permits, lost_permits, shared, metrics }
    }

    /// Returns for each node whether its kube-proxy has applied the changes `changed`, one for each address family.
    /// `receipt` returns what is known about the changes that the kube-proxy of a node has received.
    /// Starts to read the kube-proxies that are not known to have applied them.
    pub(crate) fn proxies(
        self: &Arc<Self>,
        changed: &[Option<EndpointChange>; AddressFamily::COUNT],
        receipt: impl Fn(&str) -> Receipt,
    ) -> Vec<NodeProxy> {
        let nodes: Vec<_> = {
            let index = self.shared.index.lock();
            index.nodes().map(|(name, node)| (Arc::clone(name), node.clone())).collect()
        };
        let now = self.shared.clock.now();
        let mut entries = self.nodes.lock();
        if entries.len() > nodes.len() {
            let names: HashSet<&Arc<str>> = nodes.iter().map(|(name, _)| name).collect();
            entries.retain(|name, entry| entry.is_read || names.contains(name));
        }
        let mut all = Vec::with_capacity(nodes.len());
        for (name, node) in nodes {
            let entry = entries.entry(Arc::clone(&name)).or_insert_with(|| ScrapedProxy {
                proxy: KubeProxyState::default(),
                address: None,
                is_ready: true,
                read_until: now,
                is_read: false,
            });
            (entry.address, entry.is_ready) = (node.address, node.not_ready_since.is_none());
            let rules = receipt(&name).rules_state(&entry.proxy, changed);
            if rules != RulesState::Written {
                entry.read_until = after(now, KEEP_READING);
                if !entry.is_read {
                    entry.is_read = true;
                    tokio::spawn(Arc::clone(self).read_while_needed(Arc::clone(&name)));
                }
            }
            all.push(NodeProxy { name, not_ready_since: node.not_ready_since, rules });
        }
        all
    }

    async fn read_while_needed(self: Arc<Self>, node: Arc<str>) {
        loop {
            let (address, is_ready) = {
                let mut entries = self.nodes.lock();
                let Some(entry) = entries.get_mut(&node) else { return };
                if entry.read_until < self.shared.clock.now() {
                    entry.is_read = false;
                    return;
                }
                (entry.address, entry.is_ready)
            };
            let read = match self.read(address, is_ready).await {
                Ok(reading) if !self.knows_settings(&node, &reading) => {
                    self.read_settings(address).await.map(|settings| (reading, Some(settings)))
                }
                read => read.map(|reading| (reading, None)),
            };
            let failed = read.is_err();
            self.metrics.scraped(&node, failed);
            let interval = {
                let mut entries = self.nodes.lock();
                let interval = read_interval(entries.values().filter(|entry| entry.is_read).count());
                let Some(entry) = entries.get_mut(&node) else { return };
                match read {
                    Ok((reading, settings)) => {
                        entry.proxy.add_reading(reading);
                        settings.into_iter().for_each(|settings| entry.proxy.set_settings(settings));
                    }
                    Err(failure) => {
                        tracing::debug!(%node, failure.why, "kube-proxy could not be read");
                        entry.proxy.add_failure(failure);
                    }
                }
                interval
            };
            self.shared.notify_changed();
            tokio::time::sleep(if failed { RETRY_INTERVAL.max(interval) } else { interval }).await;
        }
    }

    async fn read(&self, address: Option<IpAddr>, is_ready: bool) -> Result<ProxyReading, ReadFailure> {
        // The semaphores are never closed.
        let _permit = if is_ready { &self.permits } else { &self.lost_permits }.acquire().await;
        let url = self.url_of(address).map_err(|why| ReadFailure { why, hangs: false })?;
        let asked = self.shared.clock.now();
        let answer = async {
            let response = self
                .client
                .get(url.clone())
                .await
                .map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
            if !response.status().is_success() {
                return Err(format!("it returns {}", response.status()));
            }
            let date =
                response.headers().get(DATE).and_then(|date| date.to_str().ok()).map(ToOwned::to_owned);
            let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| format!("the response was incomplete: {error}"))?.to_bytes();
            let text = String::from_utf8_lossy(&body);
            ProxyReading::parse(&text, date.as_deref(), asked, self.shared.clock.now())
        };
        let read = tokio::time::timeout(READ_TIMEOUT, answer).await;
        let hangs = read.is_err();
        read.unwrap_or_else(|_| Err(format!("no response within {} s", READ_TIMEOUT.as_secs())))
            .map_err(|why| ReadFailure { why: format!("{url}: {why}"), hangs })
    }

    fn knows_settings(&self, node: &Arc<str>, reading: &ProxyReading) -> bool {
        self.nodes.lock().get(node).is_some_and(|entry| entry.proxy.knows_settings_of(reading.started))
    }

    /// Reads the settings of a kube-proxy whose metrics were just read. If the URL does not serve them, its defaults
    /// count.
    async fn read_settings(&self, address: Option<IpAddr>) -> Result<ProxySettings, ReadFailure> {
        let fail = |why: String, hangs| ReadFailure { why, hangs };
        let mut parts = self.url_of(address).map_err(|why| fail(why, false))?.into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/configz"));
        let url = Uri::from_parts(parts).map_err(|error| fail(error.to_string(), false))?;
        let answer = async {
            let response = self.client.get(url.clone()).await.map_err(|error| error.to_string())?;
            let is_success = response.status().is_success();
            let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>(is_success.then(|| String::from_utf8_lossy(&body).into_owned()))
        };
        let read = tokio::time::timeout(READ_TIMEOUT, answer).await;
        let read = read.map_err(|_| fail(format!("{url}: no response"), true))?;
        let text = read.map_err(|why| fail(format!("{url}: {why}"), false))?;
        let settings =
            text.ok_or_else(|| "it is not served".to_owned()).and_then(|text| ProxySettings::parse(&text));
        Ok(settings.unwrap_or_else(|why| {
            tracing::debug!(%url, why, "the settings of kube-proxy are not known; its defaults count");
            ProxySettings::default()
        }))
    }

    fn url_of(&self, address: Option<IpAddr>) -> Result<hyper::Uri, String> {
        const PLACEHOLDER: &str = "{node_ip}";
        let address = match address {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            Some(address) => address.to_string(),
            None if self.url.contains(PLACEHOLDER) => return Err("the node has no InternalIP".to_owned()),
            None => String::new(),
        };
        let url = self.url.replace(PLACEHOLDER, &address);
        url.parse().map_err(|error| format!("invalid URL {url:?}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_proxies_are_read_less_often() {
        assert_eq!(read_interval(1), Duration::from_millis(100));
        assert_eq!(read_interval(1000), Duration::from_secs(1));
    }
}
