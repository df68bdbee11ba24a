//! Nodes whose Node object is deleted.

use super::*;

/// Whoever deletes the object of a node that is cut off does not end it.
#[test]
fn a_deleted_node_is_remembered_for_a_while() {
    let address: std::net::IpAddr = "10.0.0.1".parse().unwrap();
    let ready = IndexedNode { addresses: vec![address], ..IndexedNode::default() };
    let lost = IndexedNode { not_ready_since: Some(at(3)), ..ready.clone() };
    type Delete = fn(&mut EndpointIndex, i64);
    let ways: [Delete; 2] = [
        |index, time| index.remove_node("n1", at(time)),
        |index, time| index.retain_nodes(&HashSet::new(), at(time)),
    ];
    for delete in ways {
        let mut index = EndpointIndex::default();
        index.put_node(&"n1".into(), lost.clone());
        delete(&mut index, 10);
        delete(&mut index, 20);
        let kept = IndexedNode { deleted_at: Some(at(10)), ..lost.clone() };
        assert_eq!(index.node_snapshot().get("n1"), Some(&kept));
        assert_eq!((index.nodes().count(), index.sizes()[3]), (0, 0), "it does not exist");
        assert!(kept.may_send(at(39)) && !kept.may_send(at(40)));
        index.sweep(at(609), RETENTION);
        assert_eq!(index.node_snapshot().len(), 1);
        index.put_node(&"n1".into(), ready.clone());
        assert_eq!(index.node_snapshot().get("n1"), Some(&ready), "it is back");
        delete(&mut index, 700);
        assert!(index.node_snapshot().is_empty(), "it was Ready");
        index.put_node(&"n1".into(), lost.clone());
        delete(&mut index, 700);
        index.sweep(at(1301), RETENTION);
        assert!(index.node_snapshot().is_empty());
    }
}

#[test]
fn the_number_of_deleted_nodes_is_bounded() {
    let mut index = EndpointIndex::default();
    for number in 0..6_000 {
        let name: std::sync::Arc<str> = number.to_string().into();
        index.put_node(&name, IndexedNode { not_ready_since: Some(at(0)), ..IndexedNode::default() });
    }
    index.retain_nodes(&HashSet::new(), at(1));
    assert_eq!(index.node_snapshot().len(), 5_000);
}
