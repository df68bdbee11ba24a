//! IPv4 addresses inside IPv6 addresses. A host with a translator or a tunnel sends such packets to the IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the IPv4 addresses inside an IPv6 address; nothing for an IPv4 address.
pub(super) fn ipv4_in(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let address = match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    };
    address.and_then(ipv4_of).into_iter()
}

fn ipv4_of(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let ipv4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // Compatible (RFC 4291, 2.5.5.1), mapped (2.5.5.2) and translated (RFC 7915). `::` and `::1` are no IPv4
        // addresses, but 0.0.0.0/8 is refused as well.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(ipv4(high, low)),
        // NAT64 (RFC 6052, 2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(ipv4(high, low)),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some(ipv4(high, low)),
        // Teredo (RFC 4380, 4): the address of the client, with all bits inverted.
        [0x2001, 0, _, _, _, _, high, low] => Some(ipv4(!high, !low)),
        // ISATAP (RFC 5214, 6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(ipv4(high, low)),
        _ => None,
    }
}
