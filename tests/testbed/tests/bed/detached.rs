use podward_testbed::{Bed, BedError, Shape};

use crate::support::{builder, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_bed_outlives_its_handle_until_it_is_taken_down() {
    // Other runs of this test may be under way.
    let name = format!("detached-{}", std::process::id());
    let up = Bed::up_detached(builder(Shape::ControlPlane, &name)).await.unwrap();
    let (id, dir) = (up.id().to_owned(), up.dir().to_owned());
    drop(up);
    assert!(matches!(Bed::up_detached(builder(Shape::ControlPlane, &name)).await, Err(BedError::Name(_))));

    let bed = Bed::attach(&name).await.unwrap();
    assert_eq!((bed.id(), bed.shape()), (id.as_str(), Shape::ControlPlane));
    assert!(Bed::list().unwrap().iter().any(|info| info.id == id && info.detached));
    bed.client().apiserver_version().await.unwrap();
    let certificate = bed.server_certificate(&["example.local", "10.200.0.1"]).unwrap();
    assert!(certificate.cert.starts_with("-----BEGIN CERTIFICATE-----"));
    // A bed with an owner does not disturb it, nor does that take the detached one for dead.
    start(builder(Shape::ControlPlane, "other")).await.down().await.unwrap();
    bed.client().apiserver_version().await.unwrap();

    bed.down().await.unwrap();
    assert!(!dir.exists());
    assert!(matches!(Bed::attach(&name).await, Err(BedError::Name(_))));
}
