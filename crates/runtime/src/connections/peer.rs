//! The address by which the limits of a peer are counted.

use std::net::{IpAddr, Ipv6Addr};

/// A client's address: an IPv4 address, or an IPv6 network of 64 bits, because one host can have a whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & (u128::MAX << 64);
                Self(Ipv6Addr::from(network).into())
            }
            address => Self(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_peer() {
        let peer = |address: &str| Peer::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(peer("fd00::1:2:3:4"), peer("fd00::ffff"));
        assert_ne!(peer("fd00:0:0:1::1"), peer("fd00::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
    }
}
