//! Reads the metrics of kube-proxies while a question waits for them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_core::UnixNanos;
use podward_proto::v1::KubeProxyPage;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::clock::after;
use crate::index::{AddressFamily, EndpointChange, IndexedNode};
use crate::kube_proxy_pages::KubeProxyPages;
use crate::metrics::TrafficMetrics;
use crate::proxy::{KubeProxyState, ProxyReading, ProxySettings, ReadFailure, RulesState};
use crate::receipt::Receipt;
use crate::shared_index::SharedIndex;
use crate::verdict::NodeProxy;

/// The pause between the two reads of a pair. Only two readings that agree, at least 80 ms apart, prove something
/// while endpoints change all the time.
const READ_INTERVAL: Duration = Duration::from_millis(100);
/// The pause for each kube-proxy that is being read. In a large cluster it limits the reads of all together to 1,000 a
/// second. A kube-proxy that has applied all changes is not read any more.
const READ_INTERVAL_PER_PROXY: Duration = Duration::from_millis(1);
/// The pause after a read that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two looks for nodes whose kube-proxy was never read.
const NEW_NODES_INTERVAL: Duration = Duration::from_secs(30);
/// How long a kube-proxy is read after the last question that needed it.
const KEEP_READING: Duration = Duration::from_secs(1);
/// The maximum number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 32;
/// The same for nodes that are not Ready. Most of these reads end with a timeout. They do not delay the others.
const MAX_CONCURRENT_READS_OF_LOST_NODES: usize = 8;
/// The same for kube-proxies of Ready nodes that could never be read.
const MAX_CONCURRENT_READS_OF_UNREADABLE: usize = 8;

/// The state of each node's kube-proxy, and the client that reads it.
pub(crate) struct ProxyScraper {
    pages: KubeProxyPages,
    nodes: Mutex<HashMap<Arc<str>, ScrapedProxy>>,
    permits: Semaphore,
    lost_permits: Semaphore,
    unreadable_permits: Semaphore,
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

impl ScrapedProxy {
    /// Returns the state of a kube-proxy that was never read.
    fn new(now: UnixNanos) -> Self {
        Self {
            proxy: KubeProxyState::default(),
            address: None,
            is_ready: true,
            read_until: now,
            is_read: false,
        }
    }
}

/// Returns the mean pause between two reads of the same kube-proxy when `proxies` are being read.
fn read_interval(proxies: usize) -> Duration {
    READ_INTERVAL.max(READ_INTERVAL_PER_PROXY.saturating_mul(u32::try_from(proxies).unwrap_or(u32::MAX)))
}

/// The position of a read in its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairedRead {
    /// The first read of all: the proxy is about to write the change. A pair follows.
    Initial,
    First,
    Second,
}

impl PairedRead {
    /// Returns the next read, and the pause before it. `interval` is the mean pause.
    fn next(self, interval: Duration, failed: bool) -> (Self, Duration) {
        match self {
            _ if failed => (PairedRead::First, RETRY_INTERVAL.max(interval)),
            PairedRead::Initial => (PairedRead::First, interval),
            PairedRead::First => (PairedRead::Second, READ_INTERVAL),
            PairedRead::Second => (PairedRead::First, (interval * 2).saturating_sub(READ_INTERVAL)),
        }
    }
}

impl ProxyScraper {
    pub(crate) fn new(pages: KubeProxyPages, shared: Arc<SharedIndex>, metrics: Arc<TrafficMetrics>) -> Self {
        let permits = Semaphore::new(MAX_CONCURRENT_READS);
        let lost_permits = Semaphore::new(MAX_CONCURRENT_READS_OF_LOST_NODES);
        let unreadable_permits = Semaphore::new(MAX_CONCURRENT_READS_OF_UNREADABLE);
        Self { pages, nodes: Mutex::default(), permits, lost_permits, unreadable_permits, shared, metrics }
    }

    /// Returns for each node whether its kube-proxy has applied the changes `changed`, one for each address family.
    /// `receipt` returns what is known about the changes that the kube-proxy of a node has received.
    /// Starts to read the kube-proxies that are not known to have applied them.
    pub(crate) fn proxies(
        self: &Arc<Self>,
        changed: &[Option<EndpointChange>; AddressFamily::COUNT],
        receipt: impl Fn(&str) -> Receipt,
    ) -> Vec<NodeProxy> {
        let nodes = self.known_nodes();
        let now = self.shared.clock.now();
        let mut entries = self.nodes.lock();
        if entries.len() > nodes.len() {
            entries.retain(|name, entry| entry.is_read || nodes.contains_key(name));
        }
        let exists = |node: &IndexedNode| node.deleted_at.is_none();
        if entries.len() > nodes.len() || !nodes.values().all(exists) {
            self.pages.retain(|name| nodes.get(name).is_some_and(exists));
        }
        let mut all = Vec::with_capacity(nodes.len());
        let last = changed.iter().flatten().map(|change| change.seen).max().unwrap_or(now);
        for (name, node) in nodes.iter().filter(|(_, node)| node.may_send(last)) {
            let entry = match entries.get_mut(name) {
                Some(entry) => entry,
                None => entries.entry(Arc::clone(name)).or_insert_with(|| ScrapedProxy::new(now)),
            };
            (entry.address, entry.is_ready) = (node.address(), node.not_ready_since.is_none());
            let rules = receipt(name).rules_state(&entry.proxy, changed);
            if rules != RulesState::Written {
                self.need(name, entry, now);
            }
            let name = match node.deleted_at {
                Some(_) => format!("deleted node {name}").into(),
                None => Arc::clone(name),
            };
            all.push(NodeProxy { name, not_ready_since: node.not_ready_since, rules });
        }
        all
    }

    /// Finds out for each node whether its kube-proxy can be read, before a question needs it, until `stop`. The result is
    /// in the metrics, which `kubectl podward doctor` shows.
    pub(crate) async fn look_at_new_nodes(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.read_new_nodes();
            tokio::select! {
                () = tokio::time::sleep(NEW_NODES_INTERVAL) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    fn read_new_nodes(self: &Arc<Self>) {
        let nodes = self.known_nodes();
        let now = self.shared.clock.now();
        let mut entries = self.nodes.lock();
        for (name, node) in nodes.iter() {
            if node.not_ready_since.is_none() && !entries.contains_key(name) {
                let entry = entries.entry(Arc::clone(name)).or_insert_with(|| ScrapedProxy::new(now));
                entry.address = node.address();
                self.need(name, entry, now);
            }
        }
    }

    fn known_nodes(&self) -> Arc<HashMap<Arc<str>, IndexedNode>> {
        self.shared.index.lock().node_snapshot()
    }

    /// Reads the kube-proxy of `node` for a while.
    fn need(self: &Arc<Self>, node: &Arc<str>, entry: &mut ScrapedProxy, now: UnixNanos) {
        entry.read_until = after(now, KEEP_READING);
        if !entry.is_read {
            entry.is_read = true;
            tokio::spawn(Arc::clone(self).read_while_needed(Arc::clone(node)));
        }
    }

    async fn read_while_needed(self: Arc<Self>, node: Arc<str>) {
        let mut paired = PairedRead::Initial;
        loop {
            let (address, permits) = {
                let mut entries = self.nodes.lock();
                let Some(entry) = entries.get_mut(&node) else { return };
                if entry.read_until < self.shared.clock.now() {
                    entry.is_read = false;
                    return;
                }
                let permits = match () {
                    () if !entry.is_ready => &self.lost_permits,
                    () if entry.proxy.is_unreadable() => &self.unreadable_permits,
                    () => &self.permits,
                };
                (entry.address, permits)
            };
            let read = match self.read(&node, address, permits).await {
                Ok(reading) if !self.knows_settings(&node, &reading) => {
                    self.read_settings(&node, address).await.map(|settings| (reading, Some(settings)))
                }
                read => read.map(|reading| (reading, None)),
            };
            let failed = read.is_err();
            self.metrics.scraped(&node, failed);
            for (reader, nodes) in self.pages.counts() {
                self.metrics.set_kube_proxies(reader.as_str(), nodes);
            }
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
            let pause;
            (paired, pause) = paired.next(interval, failed);
            tokio::time::sleep(pause).await;
        }
    }

    async fn read(
        &self,
        node: &Arc<str>,
        address: Option<IpAddr>,
        permits: &Semaphore,
    ) -> Result<ProxyReading, ReadFailure> {
        // The semaphores are never closed.
        let _permit = permits.acquire().await;
        let asked = self.shared.clock.now();
        let page = self.pages.read(node, address, KubeProxyPage::Metrics).await?;
        let reading = match page.is_success {
            true => {
                let text = String::from_utf8_lossy(&page.body);
                ProxyReading::parse(&text, page.date.as_deref(), asked, self.shared.clock.now())
            }
            false => Err(format!("it returns {}", page.status)),
        };
        reading.map_err(|why| ReadFailure { why: format!("the metrics of kube-proxy: {why}"), hangs: false })
    }

    fn knows_settings(&self, node: &Arc<str>, reading: &ProxyReading) -> bool {
        self.nodes.lock().get(node).is_some_and(|entry| entry.proxy.knows_settings_of(reading.started))
    }

    /// Reads the settings of a kube-proxy whose metrics were just read. If they are not served, its defaults count.
    async fn read_settings(
        &self,
        node: &Arc<str>,
        address: Option<IpAddr>,
    ) -> Result<ProxySettings, ReadFailure> {
        let page = self.pages.read(node, address, KubeProxyPage::Configz).await?;
        let settings = match page.is_success {
            true => ProxySettings::parse(&String::from_utf8_lossy(&page.body)),
            false => Err(format!("it returns {}", page.status)),
        };
        Ok(settings.unwrap_or_else(|why| {
            tracing::debug!(%node, why, "the settings of kube-proxy are not known; its defaults count");
            ProxySettings::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::args::NODE_IP;
    use crate::clock::Clock;

    /// Looks at 64 nodes whose kube-proxy could never be read and does not answer, and then at another one. Returns
    /// whether that one is read. `are_ready` and `was_unreadable` are of the 64 and of the other one.
    async fn is_read_beside_silent_ones(are_ready: bool, was_unreadable: bool) -> bool {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let other = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let shared = Arc::new(SharedIndex::new(Clock::start()));
        let now = shared.clock.now();
        let pages = KubeProxyPages::new(format!("http://{NODE_IP}:{port}/metrics"), None);
        let scraper =
            Arc::new(ProxyScraper::new(pages, Arc::clone(&shared), Arc::new(TrafficMetrics::new())));
        let put_node = |name: &Arc<str>, address: &str, is_ready: bool| {
            let not_ready_since = (!is_ready).then_some(now);
            let addresses = vec![address.parse().unwrap()];
            let node = IndexedNode { addresses, not_ready_since, ..IndexedNode::default() };
            shared.index.lock().put_node(name, node);
        };
        let fail = |name: Arc<str>| {
            let mut entry = ScrapedProxy::new(now);
            entry.proxy.add_failure(ReadFailure { why: "no response".to_owned(), hangs: false });
            scraper.nodes.lock().insert(name, entry);
        };
        let look = || {
            let changed = [Some(EndpointChange::undated(now)), None];
            scraper.proxies(&changed, |_| Receipt::SameServer);
        };
        for number in 0..64 {
            let name: Arc<str> = format!("silent{number}").into();
            put_node(&name, "127.0.0.1", are_ready);
            fail(name);
        }
        look();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let name: Arc<str> = "other".into();
        put_node(&name, "127.0.0.2", true);
        if was_unreadable {
            fail(name);
        }
        look();
        tokio::time::timeout(Duration::from_secs(2), other.accept()).await.is_ok()
    }

    /// Nodes that drop packets can be Ready.
    #[tokio::test]
    async fn kube_proxies_that_could_never_be_read_do_not_delay_the_others() {
        assert!(is_read_beside_silent_ones(true, false).await);
    }

    #[tokio::test]
    async fn kube_proxies_of_lost_nodes_do_not_delay_those_that_could_never_be_read() {
        assert!(is_read_beside_silent_ones(false, true).await);
    }

    /// A node that is cut off sends traffic by the rules that it has, also when its Node object is deleted.
    #[tokio::test]
    async fn the_kube_proxy_of_a_lost_node_that_was_just_deleted_still_counts() {
        let shared = Arc::new(SharedIndex::new(Clock::start()));
        let pages = KubeProxyPages::new(format!("http://{NODE_IP}:9/metrics"), None);
        let scraper =
            Arc::new(ProxyScraper::new(pages, Arc::clone(&shared), Arc::new(TrafficMetrics::new())));
        let second = |number: u64| after(UnixNanos(0), Duration::from_secs(number));
        let lost = IndexedNode { not_ready_since: Some(second(80)), ..IndexedNode::default() };
        shared.index.lock().put_node(&"n1".into(), lost);
        let proxies = |seen| {
            let changed = [Some(EndpointChange::undated(seen)), None];
            let all = scraper.proxies(&changed, |_| Receipt::SameServer);
            all.iter().map(|node| (node.name.to_string(), node.not_ready_since)).collect::<Vec<_>>()
        };
        assert_eq!(proxies(second(90)), [("n1".to_owned(), Some(second(80)))]);
        let loopback = "127.0.0.1".parse().ok();
        assert!(scraper.pages.read(&"n1".into(), loopback, KubeProxyPage::Metrics).await.is_err());
        let unread = || scraper.pages.counts().into_iter().filter(|(_, nodes)| *nodes > 0).count();
        shared.index.lock().remove_node("n1", second(100));
        let deleted = [("deleted node n1".to_owned(), Some(second(80)))];
        assert_eq!(unread(), 1);
        for seen in [90, 100, 129] {
            assert_eq!(proxies(second(seen)), deleted, "change at {seen} s");
        }
        assert_eq!(unread(), 0, "doctor does not warn about it");
        assert_eq!(proxies(second(130)), [], "it has been gone for long");
    }

    #[test]
    fn many_proxies_are_read_less_often() {
        assert_eq!(read_interval(1), Duration::from_millis(100));
        assert_eq!(read_interval(1000), Duration::from_secs(1));
    }

    #[test]
    fn proxies_are_read_in_pairs_at_the_same_rate() {
        let milliseconds = |proxies| {
            let interval = read_interval(proxies);
            let (second, pause) = PairedRead::First.next(interval, false);
            let (third, longer) = second.next(interval, false);
            assert_eq!((second, third), (PairedRead::Second, PairedRead::First));
            [pause, longer].map(|pause| pause.as_millis())
        };
        assert_eq!(milliseconds(1), [100, 100]);
        assert_eq!(milliseconds(100), [100, 100]);
        assert_eq!(milliseconds(1500), [100, 2900]);
        let interval = Duration::from_secs(2);
        assert_eq!(PairedRead::Initial.next(interval, false), (PairedRead::First, interval));
        for read in [PairedRead::Initial, PairedRead::First, PairedRead::Second] {
            let failed = read.next(Duration::from_millis(100), true);
            assert_eq!(failed, (PairedRead::First, RETRY_INTERVAL), "two successive reads are a pair");
        }
    }
}
