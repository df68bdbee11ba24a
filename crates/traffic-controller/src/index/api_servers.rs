//! The number of API servers.

use super::address_family::AddressFamily;
use super::endpoint_index::EndpointIndex;
use super::object::ObjectKey;

/// How many API servers the cluster has, according to the EndpointSlices of the Service `default/kubernetes`, which the
/// API servers write themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiServers {
    /// All watches come from one API server.
    One,
    /// There are so many.
    Several(usize),
    /// The slices name none.
    Unknown,
}

impl EndpointIndex {
    /// Returns the number of API servers. An API server has at most one address in each family, so the family with most
    /// addresses counts.
    pub(crate) fn api_servers(&self) -> ApiServers {
        let mut addresses = [0; AddressFamily::COUNT];
        for id in self.by_service.get(&ObjectKey::new("default", "kubernetes")).into_iter().flatten() {
            let Some(slice) = self.slices.get(id) else { continue };
            addresses[slice.family.index()] += slice.endpoints.len();
        }
        match addresses.into_iter().max() {
            Some(1) => ApiServers::One,
            None | Some(0) => ApiServers::Unknown,
            Some(number) => ApiServers::Several(number),
        }
    }
}
