use libtest_mimic::Trial;
use podward_testbed::{Shape, TestCluster, TestClusterError};

use crate::harness::test;
use crate::support::{builder, start};

pub(crate) fn tests() -> Vec<Trial> {
    vec![test(
        "detached::a_detached_cluster_runs_until_it_is_taken_down",
        a_detached_cluster_runs_until_it_is_taken_down,
    )]
}

async fn a_detached_cluster_runs_until_it_is_taken_down() {
    // Other runs of this test may use the same state folder.
    let name = format!("detached-{}", std::process::id());
    let up = TestCluster::up_detached(builder(Shape::ControlPlane, &name)).await.unwrap();
    let (id, dir) = (up.id().to_owned(), up.dir().to_owned());
    drop(up);
    assert!(matches!(
        TestCluster::up_detached(builder(Shape::ControlPlane, &name)).await,
        Err(TestClusterError::Name(_))
    ));

    let cluster = TestCluster::attach(&name).await.unwrap();
    assert_eq!((cluster.id(), cluster.shape()), (id.as_str(), Shape::ControlPlane));
    assert!(TestCluster::list().unwrap().iter().any(|info| info.id == id && info.detached));
    cluster.client().apiserver_version().await.unwrap();
    let certificate = cluster.server_certificate(&["example.local", "10.200.0.1"]).unwrap();
    assert!(certificate.cert.starts_with("-----BEGIN CERTIFICATE-----"));
    // A cluster with an owner does not disturb it, and its start does not remove the detached one as dead.
    start(builder(Shape::ControlPlane, "other")).await.down().await.unwrap();
    cluster.client().apiserver_version().await.unwrap();

    cluster.down().await.unwrap();
    assert!(!dir.exists());
    assert!(matches!(TestCluster::attach(&name).await, Err(TestClusterError::Name(_))));
}
