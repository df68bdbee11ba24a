//! Servers of this process's network, at the same loopback addresses in the network of Podward's services.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use podward_e2e::Fixture;

/// A server that the services reach until it is dropped.
pub(super) struct ReachableServer {
    _reachable: podward_support::ReachableServer,
}

impl ReachableServer {
    /// Makes the server at `address` reachable: `host:port`, or a URL.
    pub(super) async fn new(fixture: &Fixture, address: &str) -> Result<Self> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let reachable = podward_support::ReachableServer::new(fixture.cluster(), loopback, address).await?;
        Ok(Self { _reachable: reachable })
    }
}
