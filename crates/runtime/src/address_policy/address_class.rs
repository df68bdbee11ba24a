//! The addresses that are refused by default.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// An address of the Kubernetes API server.
    ApiServer,
    /// The machine or the pod that connects.
    ThisHost,
    /// An address that is valid only on one network segment. Most metadata services have one.
    LinkLocal,
    /// The metadata service of a cloud, outside of the link-local range.
    Metadata,
    /// An address of a group of hosts.
    Multicast,
    /// An address that no host has.
    Reserved,
}

impl AddressClass {
    /// Returns the class of an address; `None` if it is not refused by default.
    pub(super) fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => class_in(&IPV4, |net| net.contains(&address)),
            IpAddr::V6(address) => class_in(&IPV6, |net| net.contains(&address)),
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressClass::ApiServer => "an address of the API server",
            AddressClass::ThisHost => "an address of this host",
            AddressClass::LinkLocal => "a link-local address",
            AddressClass::Metadata => "the address of a metadata service",
            AddressClass::Multicast => "a multicast address",
            AddressClass::Reserved => "a reserved address",
        })
    }
}

fn class_in<N>(table: &[(N, AddressClass)], contains: impl Fn(&N) -> bool) -> Option<AddressClass> {
    table.iter().find(|(net, _)| contains(net)).map(|(_, class)| *class)
}

/// The IPv4 networks. Metadata services at 169.254.0.0/16 (AWS, Azure, Google, DigitalOcean, IBM, OpenStack, Oracle,
/// Scaleway, Tencent) need no entry of their own.
const IPV4: [(Ipv4Net, AddressClass); 8] = [
    // RFC 1122, 3.2.1.3. Linux connects 0.0.0.0 to itself.
    (ipv4([0, 0, 0, 0], 8), AddressClass::ThisHost),
    // RFC 1122, 3.2.1.3.
    (ipv4([127, 0, 0, 0], 8), AddressClass::ThisHost),
    // RFC 3927.
    (ipv4([169, 254, 0, 0], 16), AddressClass::LinkLocal),
    // Alibaba Cloud: "Use instance metadata".
    (ipv4([100, 100, 100, 200], 32), AddressClass::Metadata),
    // Oracle Cloud Infrastructure Classic: "Retrieving instance metadata".
    (ipv4([192, 0, 0, 192], 32), AddressClass::Metadata),
    // Azure: "What is IP address 168.63.129.16?".
    (ipv4([168, 63, 129, 16], 32), AddressClass::Metadata),
    // RFC 5771.
    (ipv4([224, 0, 0, 0], 4), AddressClass::Multicast),
    // RFC 1112, 4, and the broadcast address (RFC 919).
    (ipv4([240, 0, 0, 0], 4), AddressClass::Reserved),
];

/// The IPv6 networks. An IPv4 address inside an IPv6 address is checked in [`IPV4`].
const IPV6: [(Ipv6Net, AddressClass); 11] = [
    // RFC 4291, 2.5.2 and 2.5.3.
    (ipv6([0, 0, 0, 0, 0, 0, 0, 0], 128), AddressClass::ThisHost),
    (ipv6([0, 0, 0, 0, 0, 0, 0, 1], 128), AddressClass::ThisHost),
    // RFC 4291, 2.5.6.
    (ipv6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), AddressClass::LinkLocal),
    // AWS: "IPv6 on AWS". ::254 are the metadata, ::23 the credentials of EKS pods, ::253 the DNS resolver.
    (ipv6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), AddressClass::Metadata),
    // Google Compute Engine: "About VM metadata".
    (ipv6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), AddressClass::Metadata),
    // Oracle Cloud Infrastructure: "Getting instance metadata".
    (ipv6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), AddressClass::Metadata),
    // Scaleway and Linode: the data sources of cloud-init.
    (ipv6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), AddressClass::Metadata),
    (ipv6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128), AddressClass::Metadata),
    // Alibaba Cloud: "Use instance metadata".
    (ipv6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128), AddressClass::Metadata),
    // RFC 4291, 2.7.
    (ipv6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), AddressClass::Multicast),
    // RFC 8215. It contains an IPv4 address at a place that each network chooses.
    (ipv6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), AddressClass::Reserved),
];

const fn ipv4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn ipv6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)
}
