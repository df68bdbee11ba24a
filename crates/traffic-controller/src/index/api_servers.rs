//! The number of API servers.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1 as coordinationv1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;

use super::address_family::AddressFamily;
use super::endpoint_index::EndpointIndex;
use super::object::{ObjectKey, kept_metadata, resource};

/// How many API servers the cluster has. Each API server adds its address to the EndpointSlices of the Service
/// `default/kubernetes`, and has a [Lease](ApiServerLease). Servers behind a load balancer can have one address, and
/// servers without Leases exist before Kubernetes 1.26, so the greater number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiServers {
    /// All watches come from one API server.
    One,
    /// There are so many.
    Several(usize),
    /// The Leases are not known, or neither slices nor Leases name a server.
    Unknown,
}

/// The Lease of an API server, which is its identity. Another API server removes it an hour or more after its server has
/// ended. Until then it counts: if it is not renewed, the server can have ended, or this process watches a server that
/// lags.
///
/// Source: <https://kubernetes.io/docs/concepts/architecture/leases/#api-server-identity>.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ApiServerLease {
    #[serde(deserialize_with = "kept_metadata")]
    pub(crate) metadata: ObjectMeta,
}

resource!(ApiServerLease, coordinationv1::Lease, NamespaceResourceScope);

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
    pub(crate) fn remove_api_server(&mut self, name: &str) {
        if let Some(leases) = &mut self.api_server_leases {
            leases.remove(name);
        }
    }

    /// Replaces all Leases of API servers by those in a complete list.
    pub(crate) fn set_api_servers(&mut self, listed: &HashSet<ObjectKey>) {
        self.api_server_leases = Some(listed.iter().map(|key| Arc::clone(&key.name)).collect());
    }

    /// Returns the number of API servers. An API server has at most one address in each family, so the family with most
    /// addresses counts.
    pub(crate) fn api_servers(&self) -> ApiServers {
        let mut addresses = [0; AddressFamily::COUNT];
        for id in self.by_service.get(&ObjectKey::new("default", "kubernetes")).into_iter().flatten() {
            let Some(slice) = self.slices.get(id) else { continue };
            addresses[slice.family.index()] += slice.endpoints.len();
        }
        let leases = self.api_server_leases.as_ref().map(HashSet::len);
        match addresses.into_iter().chain(leases).max() {
            Some(number) if number > 1 => ApiServers::Several(number),
            Some(1) if leases.is_some() => ApiServers::One,
            _ => ApiServers::Unknown,
        }
    }
}
