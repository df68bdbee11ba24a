//! The table of addresses, and properties of all addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::super::{AddressClass, ApiServerAddresses};
use super::{ip, policy};

#[test]
fn addresses_that_only_podward_could_reach_are_refused() {
    use AddressClass::*;
    for (class, addresses) in [
        (
            ApiServer,
            &["10.96.0.1", "192.0.2.7", "::ffff:10.96.0.1", "64:ff9b::c000:207", "fd00:10:96::1"][..],
        ),
        (ThisHost, &["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "::", "::1", "::ffff:127.0.0.1"]),
        (
            ThisHost,
            &["::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1", "::ffff:0.0.0.0"],
        ),
        (LinkLocal, &["169.254.169.254", "169.254.0.1", "169.254.170.2", "fe80::1", "febf::1"]),
        (LinkLocal, &["::ffff:169.254.169.254", "::a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::"]),
        // Teredo and ISATAP.
        (LinkLocal, &["2001:0:1:2:3:4:5601:5601", "fd12::5efe:a9fe:a9fe", "fd12::200:5efe:a9fe:a9fe"]),
        (Metadata, &["100.100.100.200", "192.0.0.192", "168.63.129.16", "::ffff:100.100.100.200"]),
        (Metadata, &["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"]),
        (Metadata, &["fd00:a9fe:a9fe::1", "fd00:100::100:200"]),
        (Multicast, &["224.0.0.1", "239.255.255.255", "ff02::1", "::ffff:224.0.0.1"]),
        (Reserved, &["255.255.255.255", "240.0.0.1", "64:ff9b:1::1", "64:ff9b:1:7f00:0:100::"]),
    ] {
        for address in addresses {
            assert_eq!(policy(&[]).check(ip(address)), Err(class), "{address}");
        }
    }
}

#[test]
fn addresses_of_services_are_allowed() {
    for address in [
        "10.96.0.2",
        "10.244.1.5",
        "172.16.0.1",
        "192.168.1.1",
        "192.0.2.8",
        "100.64.0.1",
        "128.0.0.1",
        "126.255.255.255",
        "169.253.255.255",
        "169.255.0.0",
        "223.255.255.255",
        "fd00::1",
        "fd00:10:96::2",
        "2001:db8::1",
        "64:ff9b::808:808",
        "::ffff:10.0.0.1",
        "2002:0a00:1::",
    ] {
        assert_eq!(policy(&[]).check(ip(address)), Ok(()), "{address}");
    }
}

#[test]
fn the_allow_list_is_stronger_than_every_refusal() {
    let policy = policy(&["127.0.0.0/8", "192.0.2.7/32", "fe80::/10", "::1/128"]);
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "192.0.2.7", "fe80::1", "::1"] {
        assert_eq!(policy.check(ip(address)), Ok(()), "{address}");
    }
    // The same host by way of a translator is another path, which nobody has allowed.
    for address in ["10.96.0.1", "169.254.169.254", "64:ff9b::7f00:1", "::127.0.0.1"] {
        assert!(policy.check(ip(address)).is_err(), "{address}");
    }
}

#[test]
fn the_api_server_is_known_only_when_all_sources_are_read() {
    let known = ApiServerAddresses::of_client("[fd00::6443]", Some("10.96.0.1"));
    assert!(known.contains(ip("fd00::6443")) && known.contains(ip("10.96.0.1")) && !known.are_known());
    known.set_service([ip("10.96.0.1")]);
    assert!(!known.are_known());
    known.set_endpoints([ip("::ffff:192.0.2.7")]);
    assert!(known.are_known() && known.contains(ip("192.0.2.7")) && !known.contains(ip("192.0.2.8")));
    assert_eq!(known.name(), None);
    // An address that it does not have any more.
    known.set_endpoints([ip("192.0.2.8")]);
    assert!(known.contains(ip("192.0.2.8")) && !known.contains(ip("192.0.2.7")));
    assert_eq!(ApiServerAddresses::of_client("api.example", None).name().as_deref(), Some("api.example"));
}

/// All addresses that contain `address`.
fn forms(address: Ipv4Addr) -> Vec<IpAddr> {
    let [a, b, c, d] = address.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    [
        address.to_ipv6_mapped(),
        address.to_ipv6_compatible(),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 7, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !high, !low),
    ]
    .map(IpAddr::V6)
    .into_iter()
    .chain([IpAddr::V4(address)])
    .collect()
}

/// Addresses in and around the ranges that are refused, and any other.
fn any_ipv4() -> impl Strategy<Value = Ipv4Addr> {
    let near = prop::sample::select(vec![
        [0u8, 0, 0, 0],
        [127, 0, 0, 0],
        [169, 254, 0, 0],
        [224, 0, 0, 0],
        [255, 255, 0, 0],
        [10, 96, 0, 0],
    ]);
    prop_oneof![
        any::<u32>().prop_map(Ipv4Addr::from),
        (near, any::<[u8; 4]>(), 0u32..=32).prop_map(|(base, other, keep)| {
            let mask = u32::MAX.checked_shl(32 - keep).unwrap_or(0);
            Ipv4Addr::from(u32::from_be_bytes(base) & mask | u32::from_be_bytes(other) & !mask)
        }),
    ]
}

proptest! {
    #[test]
    fn no_form_of_a_refused_address_is_allowed(address in any_ipv4()) {
        let is_refused = address.is_loopback() || address.is_link_local() || address.is_unspecified()
            || address.is_multicast() || address.is_broadcast() || address == Ipv4Addr::new(10, 96, 0, 1);
        for form in forms(address) {
            if is_refused {
                prop_assert!(policy(&[]).check(form).is_err(), "{form}");
            }
            let alike = policy(&[]).check(IpAddr::V4(address)).is_ok();
            prop_assert_eq!(policy(&[]).check(form).is_ok(), alike, "{}", form);
        }
        prop_assert_eq!(policy(&["0.0.0.0/0"]).check(IpAddr::V4(address)), Ok(()));
    }

    #[test]
    fn no_ipv6_address_of_this_host_is_allowed(bits in any::<u128>()) {
        let address = Ipv6Addr::from(bits);
        let is_of_this_host = address.is_loopback() || address.is_unspecified();
        if is_of_this_host || address.is_unicast_link_local() || address.is_multicast() {
            prop_assert!(policy(&[]).check(IpAddr::V6(address)).is_err());
        }
        let link_local = Ipv6Addr::from(bits >> 10 | 0xfe80 << 112);
        prop_assert!(policy(&[]).check(IpAddr::V6(link_local)).is_err());
    }
}
