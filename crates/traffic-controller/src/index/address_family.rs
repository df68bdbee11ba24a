//! Address families.

use std::net::IpAddr;

/// An address family of endpoints and of kube-proxy's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    pub(crate) const COUNT: usize = 2;
    pub(crate) const ALL: [AddressFamily; Self::COUNT] = [AddressFamily::V4, AddressFamily::V6];

    /// Returns the index of the family in arrays with one element for each family.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name that kube-proxy's metrics and the field `addressType` of slices use.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            AddressFamily::V4 => "IPv4",
            AddressFamily::V6 => "IPv6",
        }
    }

    /// Returns the family of `address`.
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { AddressFamily::V4 } else { AddressFamily::V6 }
    }
}
