//! The number of API servers.

use super::*;

/// Writes the addresses of the API servers in one family.
pub(super) fn put_addresses(index: &mut EndpointIndex, family: &str, addresses: &[&str], time: i64) {
    let slice = json!({
        "metadata": {"name": "s", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": addresses.iter().map(|address| json!({"addresses": [address]})).collect::<Vec<_>>(),
    });
    let slice = serde_json::from_value::<SliceObject>(slice).unwrap().slice().unwrap();
    index.put_slice(ObjectKey::new("default", family), slice, ChangeOrigin::Watched, at(time));
}

pub(super) fn leases(names: &[&str]) -> HashSet<ObjectKey> {
    names.iter().map(|name| ObjectKey::new("kube-system", name)).collect()
}

#[test]
fn api_servers_are_counted_in_their_slices_and_leases() {
    let mut index = EndpointIndex::default();
    assert!(!index.put_api_server("a".into()), "the list is not complete");
    put_addresses(&mut index, "IPv4", &["10.0.0.1"], 1);
    assert_eq!(index.api_servers(at(1)), ApiServers::Unknown, "the Leases are not known");
    index.set_api_servers(&leases(&[]), at(1));
    assert_eq!(index.api_servers(at(1)), ApiServers::One, "without Leases");
    put_addresses(&mut index, "IPv6", &["fd00::1"], 1);
    assert_eq!(index.api_servers(at(1)), ApiServers::One, "one server with two addresses");
    index.set_api_servers(&leases(&["a"]), at(1));
    assert_eq!(index.api_servers(at(1)), ApiServers::One);
    assert!(index.put_api_server("b".into()) && !index.put_api_server("b".into()));
    assert_eq!(index.api_servers(at(1)), ApiServers::Several(2), "behind one address");
    put_addresses(&mut index, "IPv4", &["10.0.0.1", "10.0.0.2", "10.0.0.3"], 1);
    assert_eq!(index.api_servers(at(1)), ApiServers::Several(3));

    let mut without_addresses = EndpointIndex::default();
    without_addresses.set_api_servers(&leases(&[]), at(1));
    put_addresses(&mut without_addresses, "IPv4", &[], 1);
    assert_eq!(without_addresses.api_servers(at(1)), ApiServers::Unknown);
    without_addresses.set_api_servers(&leases(&["a"]), at(1));
    assert_eq!(without_addresses.api_servers(at(1)), ApiServers::One);
}

#[test]
fn an_api_server_that_shuts_down_still_counts() {
    type Change = fn(&mut EndpointIndex);
    let changes: [(&str, Change); 4] = [
        ("its Lease is deleted", |index| index.remove_api_server("b", at(1000))),
        ("its Lease is not listed", |index| index.set_api_servers(&leases(&["a"]), at(1000))),
        ("its address is removed", |index| put_addresses(index, "IPv4", &["10.0.0.1"], 1000)),
        ("its slice is removed", |index| {
            index.remove_slice(&ObjectKey::new("default", "IPv4"), ChangeOrigin::Watched, at(1000));
        }),
    ];
    for (number, (change, apply)) in changes.into_iter().enumerate() {
        let mut index = EndpointIndex::default();
        index.set_api_servers(&leases(&["a"]), at(1));
        if number < 2 {
            assert!(index.put_api_server("b".into()));
        } else {
            put_addresses(&mut index, "IPv4", &["10.0.0.1", "10.0.0.2"], 1);
        }
        assert_eq!(index.api_servers(at(999)), ApiServers::Several(2), "{change}");
        apply(&mut index);
        assert_eq!(index.api_servers(at(1000)), ApiServers::Several(2), "{change}: at once");
        // A change of the only server that is left does not extend the time.
        index.set_api_servers(&leases(&["a"]), at(1500));
        assert_eq!(
            index.api_servers(at(1599)),
            ApiServers::Several(2),
            "{change}: while it may serve watches"
        );
        assert_eq!(index.api_servers(at(1600)), ApiServers::One, "{change}: it has ended");
    }
}
