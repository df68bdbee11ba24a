//! Requests for pods that the leader knows.

use std::sync::Arc;

use podward_kube_util::PodKey;
use tokio::sync::watch;

use super::*;
use crate::KnownPods;

struct Known(Arc<CachedPod>);

impl KnownPods for Known {
    fn newest(&self, key: &PodKey) -> Option<Arc<CachedPod>> {
        (*key == self.0.key()).then(|| self.0.clone())
    }
}

pub(super) async fn a_known_pod_may_be_out_of_date(fixture: Fixture) {
    fixture.pods(1).await;
    fixture.until_in_service().await;
    let pod = fixture.key("web-0");
    let pods: Api<CachedPod> = Api::namespaced(fixture.client.clone(), &pod.namespace);
    let before = Arc::new(pods.get("web-0").await.unwrap());
    let (_leads, known) = watch::channel(Some(Arc::new(Known(before.clone())) as Arc<dyn KnownPods>));
    let writer = DeletionRequestWriter::new(fixture.client.clone(), DeletionMetrics::new()).with_known(known);

    // Another writer changes the pod, and the leader does not know it.
    fixture.label("web-0", json!({"touched": "1"})).await;
    let evict = deletion_request(DeletionKind::Evict, "jane");
    let recorded = writer.request(&pod, Some(before.uid()), &evict).await.unwrap();
    assert_eq!(recorded.deletion_request().unwrap().requested_by, "jane");
    assert_eq!(recorded.labels().get("touched").map(String::as_str), Some("1"));

    // The version that the leader knows has no request, and the stored one has.
    let again = writer.request(&pod, None, &deletion_request(DeletionKind::Evict, "joe")).await.unwrap();
    assert_eq!(again.resource_version(), recorded.resource_version(), "nothing was written");

    let other = writer.request(&pod, Some("other"), &evict).await;
    assert!(matches!(other, Err(DeletionRefusal::WrongUid { .. })), "{other:?}");

    // The leader does not know yet that the pod was replaced.
    fixture.until("the pod is gone", |pods| pods.is_gone("web-0")).await;
    let missing = writer.request(&pod, None, &evict).await;
    assert!(matches!(missing, Err(DeletionRefusal::NotFound(_))), "{missing:?}");
}
