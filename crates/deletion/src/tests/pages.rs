//! Workloads whose pods fill a page of a list.

use super::*;
use crate::owners::PAGE_SIZE;

/// There are other pods behind the page, so the API server returns a token to continue, and then a page without pods.
pub(super) async fn a_workload_has_as_many_pods_as_a_page_holds(fixture: Fixture) {
    let pods = fixture.replica_set(PAGE_SIZE as usize).await;
    fixture.other_pod("web-zzzzz").await;
    fixture.scale(PAGE_SIZE as usize - 1).await;
    let delete = deletion_request(DeletionKind::Delete, REPLICA_SET_CONTROLLER);
    let recorded = fixture.writer.request(&fixture.key(&pods[0]), None, &delete).await.unwrap();
    assert!(recorded.deletion_request().is_some_and(|request| request.by_workload));
    let refused = fixture.writer.request(&fixture.key(&pods[1]), None, &delete).await;
    let Err(DeletionRefusal::NoRoom(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("500 active pods and wants 499"), "{why}");
}
