//! Events about writes that the API server refuses.

use std::sync::Arc;

use kube::core::Status;
use kube::runtime::reflector;
use podward_kube_util::{ApiError, CachedPod};
use podward_support::eventually;

use super::TIMEOUT;
use super::api_server::ApiServer;
use super::fixture::context;
use super::pod;

#[tokio::test]
async fn a_write_that_is_refused_again_and_again_causes_one_event() {
    let (store, _writer) = reflector::store();
    let server = ApiServer::new();
    let (context, _) = context(&server, &store);
    let refused = |name: &str| {
        let pod: Arc<CachedPod> = Arc::new(serde_json::from_value(pod(name)).unwrap());
        context.observe(&pod);
        let source =
            Box::new(kube::Error::Api(Box::new(Status::failure("a policy", "Forbidden").with_code(403))));
        context.report.failed(&pod, &ApiError::Refused { what: "write", pod: pod.key(), source });
    };
    (0..5).for_each(|_| refused("web-0"));
    refused("last");
    let is_reported = || server.count_events("WriteRefused", "last") > 0;
    eventually(TIMEOUT, || "the last event".to_owned(), is_reported).await.unwrap();
    assert_eq!(server.count_events("WriteRefused", "web-0"), 1);
}
