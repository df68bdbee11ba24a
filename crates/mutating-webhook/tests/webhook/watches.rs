//! The watches of hooks and namespaces.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use mutating_webhook::ConsumerHooks;
use parking_lot::Mutex;
use podward_core::hooks::consumer_key_of;
use podward_runtime::WebhookSetup;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::reviews::{pod, review};
use crate::{post, send, service_with};

const HOOKS: &str = "/apis/podward.io/v1alpha1/lifecyclehooks";

/// An API server that lists hooks and namespaces. A watch fails when the lists change.
#[derive(Clone, Default)]
struct ListServer {
    /// `None` while the CRD is not installed.
    hooks: Arc<Mutex<Option<Vec<Value>>>>,
    changed: Arc<Notify>,
}

impl ListServer {
    fn client(&self) -> Client {
        let lists = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = lists.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn answer(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        if request.uri().query().unwrap_or_default().contains("watch=true") {
            let changed = Arc::clone(&self.changed);
            let broken = stream::once(async move {
                changed.notified().await;
                let gone = json!({
                    "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "x",
                });
                Ok(Frame::data(Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": gone})))))
            });
            return Response::new(StreamBody::new(broken.chain(stream::pending())).boxed_unsync());
        }
        let items = match request.uri().path() {
            HOOKS => self.hooks.lock().clone(),
            _ => Some(vec![json!({"metadata": {"name": "shop", "labels": {"team": "a"}}})]),
        };
        let (status, body) = match items {
            Some(items) => (
                StatusCode::OK,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
            ),
            None => (
                StatusCode::NOT_FOUND,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
            ),
        };
        let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
        *answer.status_mut() = status;
        answer
    }
}

async fn eventually(holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
}

#[tokio::test]
async fn hooks_are_known_when_the_crd_is_installed() {
    let lists = ListServer::default();
    let mut setup = WebhookSetup::new("test", "1", CancellationToken::new());
    let service = service_with(false, ConsumerHooks::follow(&lists.client(), &mut setup));
    let has_consumer = async |hook: &str| {
        let (_, body) =
            send(&service, post("/mutate", review("CREATE", Value::Null, pod(&[])).to_string())).await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["response"]["allowed"], true);
        let Some(patch) = answer["response"].get("patch") else { return false };
        let patch: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
        String::from_utf8(patch.0).unwrap().contains(&consumer_key_of(hook))
    };
    // Without the CRD there are no hooks, but the process is ready.
    eventually(async || setup.readiness.missing().is_empty()).await;
    assert!(!has_consumer("mesh").await);

    let hook = |name: &str, team: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"phases": ["Prepare"], "namespaceSelector": {"matchLabels": {"team": team}}, "attachment": {}},
        })
    };
    let mut later = hook("later", "a");
    later["spec"]["phases"] = json!(["OfALaterVersion"]);
    *lists.hooks.lock() = Some(vec![later, hook("mesh", "a"), hook("other", "b")]);
    eventually(async || has_consumer("mesh").await).await;
    assert!(!has_consumer("other").await, "the hook is for other namespaces");
    assert!(!has_consumer("later").await, "the hook cannot be read");

    *lists.hooks.lock() = Some(Vec::new());
    lists.changed.notify_waiters();
    eventually(async || !has_consumer("mesh").await).await;
}
