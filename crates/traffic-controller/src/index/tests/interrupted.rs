//! What may have happened while a watch was interrupted.

use super::api_servers::{leases, put_addresses};
use super::*;

/// Lists the slices again, after an interruption.
fn list(index: &mut EndpointIndex, slice: &IndexedSlice, time: i64) {
    let key = ObjectKey::new("shop", "s");
    index.put_slice(key.clone(), slice.clone(), ChangeOrigin::Listed(None), at(time));
    index.retain_slices(&HashSet::from([key]), at(time));
    index.set_slices_listed(at(time));
}

/// During the interruption the pod became ready, a kube-proxy added it, and then its gate became False.
#[test]
fn a_pod_whose_slice_looks_the_same_after_an_interruption_may_have_been_sent_traffic() {
    let not_ready = slice("web", &[("a", false, false, false)]);
    let mut index = EndpointIndex::default();
    index.set_slices_listed(at(1));
    put(&mut index, "s", not_ready.clone(), 5);
    let never_ready = TargetPod { never_ready: true, ..pod("a") };
    let before = index.pod_endpoints(&never_ready);
    assert_eq!((before.changed[0], before.never_sent), (Some(EndpointChange::dated(at(5), at(4))), true));
    list(&mut index, &not_ready, 60);
    let after = index.pod_endpoints(&never_ready);
    let change = after.changed[0].unwrap();
    assert_eq!(
        (change.seen, change.received_from),
        (at(60), at(60)),
        "kube-proxy must have received all until then"
    );
    assert_eq!(
        change.not_before,
        Some(at(4)),
        "a kube-proxy that received nothing since the earlier change is cut off"
    );
    assert!(!after.never_sent);
    // What is watched afterwards is known exactly.
    put(&mut index, "s", slice("web", &[("a", true, true, false)]), 70);
    assert_eq!(index.pod_endpoints(&never_ready).changed[0], Some(EndpointChange::dated(at(70), at(69))));
}

#[test]
fn a_service_that_a_pod_has_left_before_an_interruption_counts_from_the_next_list() {
    let mut index = EndpointIndex::default();
    index.set_slices_listed(at(1));
    put(&mut index, "s", slice("web", &[("a", true, true, false)]), 5);
    put(&mut index, "s", slice("web", &[]), 6);
    list(&mut index, &slice("web", &[]), 60);
    let left = index.pod_endpoints(&pod("a")).left[DataPath::KubeProxy.index()].unwrap();
    assert_eq!((left.seen, left.not_before), (at(60), Some(at(5))));
}

/// The first list says when a slice was changed.
#[test]
fn the_first_list_is_no_interruption() {
    let mut index = EndpointIndex::default();
    let trigger = ChangeOrigin::Listed(Some(at(100)));
    index.put_slice(ObjectKey::new("shop", "s"), slice("web", &[("a", true, true, false)]), trigger, at(200));
    index.set_slices_listed(at(201));
    assert_eq!(index.pod_endpoints(&pod("a")).changed[0], Some(EndpointChange::dated(at(200), at(90))));
}

#[test]
fn the_api_servers_are_not_known_while_the_watch_of_their_leases_is_interrupted() {
    let mut index = EndpointIndex::default();
    put_addresses(&mut index, "IPv4", &["10.0.0.1"], 1);
    index.set_api_servers(&leases(&["a"]), at(1));
    assert_eq!(index.api_servers(at(2)), ApiServers::One);
    index.forget_api_servers(at(3));
    assert_eq!(index.api_servers(at(3)), ApiServers::Unknown);
    index.set_api_servers(&leases(&["a", "b"]), at(4));
    index.forget_api_servers(at(1000));
    assert_eq!(
        index.api_servers(at(1001)),
        ApiServers::Several(2),
        "those that were known remain for a while"
    );
    assert_eq!(index.api_servers(at(1600)), ApiServers::Unknown);
}
