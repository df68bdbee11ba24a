//! The number of API servers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1 as coordinationv1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use podward_core::UnixNanos;
use serde::Deserialize;

use super::address_family::AddressFamily;
use super::endpoint_index::EndpointIndex;
use super::object::{ObjectKey, WatchedObject, kept_metadata};
use crate::clock::before;

/// How long API servers count after their addresses or Leases are gone. A server removes both when it begins to shut
/// down, and serves its watches for the time of `--shutdown-delay-duration`, and then until its requests have ended (a
/// minute each for the handlers and for the connections). Meanwhile a kube-proxy may still watch it.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(600);

/// How many API servers the cluster has. Each API server adds its address to the EndpointSlices of the Service
/// `default/kubernetes`, and has a [Lease](ApiServerLease). Servers behind a load balancer can have one address, and
/// servers with the same host name have one Lease, so the greater number counts. Servers that have both in common count
/// as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiServers {
    /// All watches come from one API server.
    One,
    /// There are so many.
    Several(usize),
    /// The Leases are not known, or neither slices nor Leases name a server.
    Unknown,
}

/// The Lease of an API server, which is its identity. Its name is made from the host name. A server removes its Lease
/// when it begins to shut down (since Kubernetes 1.36). If it cannot, another server does so one to two hours later.
/// Until then it counts: if it is not renewed, the server can have ended, or this process watches a server that lags.
///
/// Source: <https://kubernetes.io/docs/concepts/architecture/leases/#api-server-identity>.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = coordinationv1::Lease)]
pub(crate) struct ApiServerLease {
    #[serde(deserialize_with = "kept_metadata")]
    pub(crate) metadata: ObjectMeta,
}

impl WatchedObject for ApiServerLease {
    const KIND: &'static str = <coordinationv1::Lease as k8s_openapi::Resource>::KIND;
}

impl ApiServerLease {
    /// The namespace of the Leases.
    pub(crate) const NAMESPACE: &'static str = "kube-system";
    /// The label that Leases of other kinds do not have.
    pub(crate) const SELECTOR: &'static str = "apiserver.kubernetes.io/identity=kube-apiserver";
}

impl EndpointIndex {
    /// Adds the Lease `name` of an API server. Returns true if it is new.
    pub(crate) fn put_api_server(&mut self, name: Arc<str>) -> bool {
        self.api_server_leases.as_mut().is_some_and(|leases| leases.insert(name))
    }

    /// Removes the Lease `name` of an API server.
    pub(crate) fn remove_api_server(&mut self, name: &str, now: UnixNanos) {
        self.remember_api_servers(now);
        if let Some(leases) = &mut self.api_server_leases {
            leases.remove(name);
        }
    }

    /// Replaces all Leases of API servers by those in a complete list.
    pub(crate) fn set_api_servers(&mut self, listed: &HashSet<ObjectKey>, now: UnixNanos) {
        self.remember_api_servers(now);
        self.api_server_leases = Some(listed.iter().map(|key| Arc::clone(&key.name)).collect());
    }

    /// Records that the Leases of API servers are not known, because their watch is interrupted.
    pub(crate) fn forget_api_servers(&mut self, now: UnixNanos) {
        self.remember_api_servers(now);
        self.api_server_leases = None;
    }

    /// Remembers the number of API servers, before a change that may reduce it.
    pub(super) fn remember_api_servers(&mut self, now: UnixNanos) {
        if let Some(number) = self.counted_api_servers().filter(|number| *number > 1) {
            self.last_several_api_servers = Some((number, now));
        }
    }

    /// Returns the number of API servers, including those that may still shut down.
    pub(crate) fn api_servers(&self, now: UnixNanos) -> ApiServers {
        let last = self.last_several_api_servers.filter(|(_, seen)| *seen > before(now, SHUTDOWN_LIMIT));
        match self.counted_api_servers().max(last.map(|(number, _)| number)) {
            Some(number) if number > 1 => ApiServers::Several(number),
            Some(1) if self.api_server_leases.is_some() => ApiServers::One,
            _ => ApiServers::Unknown,
        }
    }

    /// Returns the number of API servers that have addresses or Leases. An API server has at most one address in each
    /// family, so the family with most addresses counts.
    fn counted_api_servers(&self) -> Option<usize> {
        let mut addresses = [0; AddressFamily::COUNT];
        for id in self.by_service.get(&ObjectKey::new("default", "kubernetes")).into_iter().flatten() {
            let Some(slice) = self.slices.get(id) else { continue };
            addresses[slice.family.index()] += slice.endpoints.len();
        }
        let leases = self.api_server_leases.as_ref().map(HashSet::len);
        addresses.into_iter().chain(leases).max()
    }
}
