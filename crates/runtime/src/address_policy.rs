//! Which addresses Podward connects to when a user without rights in Podward's namespace wrote the URL.
//!
//! Such a URL must not turn Podward into a way to reach what only Podward can reach: the API server, the cloud's
//! metadata service, the ports of Podward's own pod.
//!
//! ```text
//!  URL ──► GuardedConnector ──► resolve once ──► AddressPolicy::check for each address ──► connect to those that pass
//! ```
//!
//! # Guarantees
//! - The address that is checked is the address that is connected to. The name is not resolved again, so a name that
//!   resolves to another address a moment later (DNS rebinding) changes nothing. It does not matter how the host is
//!   spelled in the URL.
//! - An IPv4 address inside an IPv6 address (mapped, compatible, translated, NAT64, 6to4, Teredo) is checked too.
//! - While the addresses of the API server are not known, nothing is connected to.

mod address_class;
mod api_server;
mod connector;
mod dialer;
mod embedded;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

pub use address_class::AddressClass;
pub use api_server::ApiServerAddresses;
pub use connector::GuardedConnector;
pub use dialer::{DialError, GuardedDialer, Resolve, SystemResolver};

/// Decides which addresses may be connected to. Clones share the addresses of the API server.
#[derive(Clone, Debug)]
pub struct AddressPolicy {
    allowed: Arc<[IpNet]>,
    api_server: ApiServerAddresses,
}

impl AddressPolicy {
    /// Returns a policy that refuses every [`AddressClass`] and allows all other addresses. An address in `allowed` may
    /// always be connected to.
    #[must_use]
    pub fn new(allowed: &[IpNet], api_server: ApiServerAddresses) -> Self {
        Self { allowed: allowed.into(), api_server }
    }

    /// Checks an address.
    ///
    /// # Errors
    /// Returns the class of an address that must not be connected to.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressClass> {
        if self.allows(address) {
            return Ok(());
        }
        let forms = std::iter::once(address.to_canonical()).chain(embedded::ipv4_in(address).map(IpAddr::V4));
        let refusal = |form: IpAddr| match self.api_server.contains(form) {
            true => Some(AddressClass::ApiServer),
            false => AddressClass::of(form),
        };
        forms.filter_map(refusal).next().map_or(Ok(()), Err)
    }

    /// Returns the addresses of the API server that this policy refuses.
    #[must_use]
    pub fn api_server(&self) -> &ApiServerAddresses {
        &self.api_server
    }

    /// Returns true if the allow-list contains the address. An IPv4-mapped address counts as the IPv4 address: the
    /// kernel connects to the same host.
    fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed.iter().any(|allowed| allowed.contains(&address))
    }
}

#[cfg(test)]
mod tests;
