//! Authentication and authorization, against an API server in memory that can be stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use podward_runtime::authn::{Access, Authenticator, Authorizer, Identity};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tonic::{Code, Extensions, Status};

/// It accepts the token `good`, and `for-podward` for the audience podward. Jane has all rights, others have none.
#[derive(Clone, Default)]
pub(crate) struct Reviews {
    asked: Arc<AtomicUsize>,
    away: Arc<AtomicBool>,
    hangs: Arc<HeldRequests>,
}

/// Holds requests back while it hangs.
#[derive(Default)]
struct HeldRequests {
    hangs: AtomicBool,
    changed: Notify,
}

impl Reviews {
    pub(crate) fn client(&self) -> Client {
        let reviews = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let reviews = reviews.clone();
            async move { Ok::<_, Infallible>(reviews.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Full<Bytes>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let released = self.hangs.changed.notified();
        if self.hangs.hangs.load(Ordering::SeqCst) {
            released.await;
        }
        // Lets other callers ask the same.
        tokio::task::yield_now().await;
        if self.away.load(Ordering::SeqCst) {
            let mut away = Response::new(Full::from("no"));
            *away.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return away;
        }
        let is_token = request.uri().path().ends_with("/tokenreviews");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let spec = &review["spec"];
        review["status"] = if is_token {
            let audiences = spec["audiences"].as_array().cloned().unwrap_or_default();
            let user = json!({"username": "jane", "groups": ["sre"], "extra": {"k": ["v"]}});
            match spec["token"].as_str().unwrap() {
                "good" if audiences.is_empty() => json!({"authenticated": true, "user": user}),
                "for-podward" if !audiences.is_empty() => {
                    json!({"authenticated": true, "user": user, "audiences": audiences})
                }
                // An API server without support for audiences.
                "careless" if !audiences.is_empty() => json!({"authenticated": true, "user": user}),
                _ => json!({"error": "invalid bearer token"}),
            }
        } else {
            json!({"allowed": spec["user"] == "jane"})
        };
        Response::new(Full::from(review.to_string()))
    }

    /// Answers no more requests until [`answer_again`](Self::answer_again).
    pub(crate) fn hang(&self) {
        self.hangs.hangs.store(true, Ordering::SeqCst);
    }

    pub(crate) fn answer_again(&self) {
        self.hangs.hangs.store(false, Ordering::SeqCst);
        self.hangs.changed.notify_waiters();
    }

    /// Waits until `count` requests have arrived.
    pub(crate) async fn until_asked(&self, count: usize) {
        while self.asked.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the number of requests since the last call.
    pub(crate) fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

async fn identify(authenticator: &Authenticator, header: &str) -> Result<Arc<Identity>, Status> {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]);
    authenticator.identify(&headers, &Extensions::default()).await
}

#[tokio::test]
async fn a_token_is_reviewed_once() {
    let reviews = Reviews::default();
    let authenticator = Authenticator::new(reviews.client(), Some("podward".to_owned()));
    let answers = join_all((0..50).map(|_| identify(&authenticator, "Bearer good"))).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().is_ok_and(|who| who.user == "jane" && who.groups == ["sre"]))
    );
    assert_eq!(reviews.asked(), 1);
    assert_eq!(identify(&authenticator, "bearer for-podward").await.unwrap().extra["k"], ["v"]);
    assert_eq!(reviews.asked(), 2, "for the API server, then for podward");
    for token in ["secret", "careless"] {
        for _ in 0..2 {
            let refused = identify(&authenticator, &format!("Bearer {token}")).await.unwrap_err();
            assert!(
                refused.code() == Code::Unauthenticated && !refused.message().contains(token),
                "{refused}"
            );
        }
        assert_eq!(reviews.asked(), 2, "a refusal is remembered, too");
    }
}

#[tokio::test]
async fn nothing_is_allowed_without_an_answer() {
    let reviews = Reviews::default();
    let authenticator = Authenticator::new(reviews.client(), None);
    let authorizer = Authorizer::new(reviews.client());
    let (jane, joe) = (
        Identity { user: "jane".to_owned(), ..Identity::default() },
        Identity { user: "joe".to_owned(), ..Identity::default() },
    );
    let access = |verb| Access {
        verb,
        group: "",
        resource: "pods",
        subresource: "",
        namespace: Some("shop"),
        name: Some("web"),
    };
    authorizer.authorize(&jane, access("update")).await.unwrap();
    let denied = authorizer.authorize(&joe, access("update")).await.unwrap_err();
    assert!(
        denied.code() == Code::PermissionDenied
            && denied.message().contains("joe may not update pods in namespace shop")
    );

    reviews.away.store(true, Ordering::SeqCst);
    assert_eq!(identify(&authenticator, "Bearer good").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(authorizer.authorize(&jane, access("get")).await.unwrap_err().code(), Code::Unavailable);
    // Answers are cached for a while. Failed reviews are tried again when the API server is back.
    authorizer.authorize(&jane, access("update")).await.unwrap();
    reviews.away.store(false, Ordering::SeqCst);
    crate::support::within(std::time::Duration::from_secs(10), async {
        while identify(&authenticator, "Bearer good").await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_error_names_the_missing_credentials() {
    let authenticator = Authenticator::new(Reviews::default().client(), None);
    let nobody = authenticator.identify(&HeaderMap::new(), &Extensions::default()).await.unwrap_err();
    assert!(
        nobody.code() == Code::Unauthenticated && nobody.message().contains("client certificate"),
        "{nobody}"
    );
    for header in ["", "Bearer", "Bearer ", "Basic c2VjcmV0", "c2VjcmV0"] {
        let refused = identify(&authenticator, header).await.unwrap_err();
        assert!(
            refused.code() == Code::Unauthenticated && !refused.message().contains("c2VjcmV0"),
            "{refused}"
        );
    }
}
