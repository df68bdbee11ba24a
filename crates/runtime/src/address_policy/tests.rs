//! Which addresses are refused, and attempts to reach them all the same.

mod addresses;
mod attempts;

use std::net::IpAddr;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a policy for a cluster whose API server is at 10.96.0.1 and 192.0.2.7.
fn policy(allowed: &[&str]) -> AddressPolicy {
    let allowed: Vec<IpNet> = allowed.iter().map(|net| net.parse().unwrap()).collect();
    let api_server = ApiServerAddresses::default();
    api_server.set_service([ip("10.96.0.1"), ip("fd00:10:96::1")]);
    api_server.set_endpoints([ip("192.0.2.7")]);
    AddressPolicy::new(&allowed, api_server)
}
