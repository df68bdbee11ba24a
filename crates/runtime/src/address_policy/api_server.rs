//! The addresses of the API server.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::RwLock;

/// The addresses of the API server, from several sources. Clones share them.
///
/// They are known when the Service `default/kubernetes` and its endpoints have been read once.
#[derive(Clone, Debug, Default)]
pub struct ApiServerAddresses {
    sources: Arc<RwLock<Sources>>,
}

#[derive(Debug, Default)]
struct Sources {
    /// The host of the client's URL, if it is a name.
    name: Option<String>,
    /// The addresses of the client's URL and of the environment. Names are resolved before each use.
    client: BTreeSet<IpAddr>,
    service: Option<BTreeSet<IpAddr>>,
    endpoints: Option<BTreeSet<IpAddr>>,
}

impl ApiServerAddresses {
    /// Returns the addresses that the process knows by itself: `host`, the host of the URL of its client (brackets of
    /// an IPv6 address are removed), and `service_host`, the value of `KUBERNETES_SERVICE_HOST` if the process runs in
    /// a pod.
    #[must_use]
    pub fn of_client(host: &str, service_host: Option<&str>) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let parsed: Option<IpAddr> = host.parse().ok();
        let of_service = service_host.and_then(|host| host.parse().ok());
        let client = parsed.into_iter().chain(of_service).map(|address: IpAddr| address.to_canonical());
        let name = (parsed.is_none() && !host.is_empty()).then(|| host.to_owned());
        let sources = Sources { name, client: client.collect(), ..Sources::default() };
        Self { sources: Arc::new(RwLock::new(sources)) }
    }

    /// Returns addresses that are complete, for tests and for processes that do not watch the API server.
    #[must_use]
    pub fn fixed(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let known = Self::default();
        known.set_service(addresses);
        known.set_endpoints([]);
        known
    }

    /// Sets the cluster IPs of the Service `default/kubernetes`.
    pub fn set_service(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.sources.write().service = Some(canonical(addresses));
    }

    /// Sets the addresses of the endpoints of the Service `default/kubernetes`.
    pub fn set_endpoints(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.sources.write().endpoints = Some(canonical(addresses));
    }

    /// Adds the addresses that the name in the client's URL has now. Earlier ones stay: a name may alternate between
    /// addresses.
    pub(super) fn add_resolved(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        /// More addresses than a name has.
        const MAX_RESOLVED: usize = 256;
        let mut sources = self.sources.write();
        let room = MAX_RESOLVED.saturating_sub(sources.client.len());
        sources.client.extend(canonical(addresses).into_iter().take(room));
    }

    /// Returns the host of the client's URL, if it is a name.
    pub(super) fn name(&self) -> Option<String> {
        self.sources.read().name.clone()
    }

    /// Returns true once all sources have been read.
    #[must_use]
    pub fn are_known(&self) -> bool {
        let sources = self.sources.read();
        sources.service.is_some() && sources.endpoints.is_some()
    }

    /// Returns true if the API server has this address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (address, sources) = (address.to_canonical(), self.sources.read());
        let of_service = [&sources.service, &sources.endpoints];
        sources.client.contains(&address)
            || of_service.into_iter().flatten().any(|addresses| addresses.contains(&address))
    }
}

fn canonical(addresses: impl IntoIterator<Item = IpAddr>) -> BTreeSet<IpAddr> {
    addresses.into_iter().map(|address| address.to_canonical()).collect()
}
