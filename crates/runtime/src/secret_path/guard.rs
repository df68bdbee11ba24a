//! The service before the webhooks that checks the secret.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use futures::FutureExt;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::uri::PathAndQuery;
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode, Uri};

use super::accepted::AcceptedSecrets;
use super::metrics::SecretPathMetrics;

/// Passes requests whose path begins with an accepted secret on to another service, without the secret. All others get
/// the same 404, whatever they ask for, and their bodies are not read.
#[derive(Clone, Debug)]
pub struct SecretPathGuard<S> {
    inner: S,
    accepted: AcceptedSecrets,
    metrics: SecretPathMetrics,
}

impl<S> SecretPathGuard<S> {
    /// Guards `inner`.
    pub fn new(inner: S, accepted: AcceptedSecrets, metrics: SecretPathMetrics) -> Self {
        Self { inner, accepted, metrics }
    }
}

type BoxedResponse = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>;

impl<S, B> Service<Request<B>> for SecretPathGuard<S>
where
    S: Service<Request<B>, Response = Response<Full<Bytes>>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxedResponse;

    fn call(&self, mut request: Request<B>) -> Self::Future {
        let passed = self.accepted.route(request.uri().path()).and_then(|route| {
            let target = match request.uri().query() {
                Some(query) => format!("{route}?{query}"),
                None => route.to_owned(),
            };
            PathAndQuery::from_maybe_shared(target).ok().map(Uri::from)
        });
        match passed {
            Some(uri) => {
                *request.uri_mut() = uri;
                Box::pin(self.inner.call(request))
            }
            None => {
                // The process checks its own port with GET.
                if request.method() == Method::POST {
                    self.metrics.refused.inc();
                }
                std::future::ready(Ok(not_found())).boxed()
            }
        }
    }
}

/// Returns the answer to every request without an accepted secret. It says nothing about the webhooks. Its body is empty,
/// so that it is sent as a whole also to a client that does not read.
fn not_found() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use http_body_util::BodyExt;
    use hyper::body::{Body, Frame};
    use hyper::service::service_fn;
    use podward_core::webhook_path::PathSecret;

    use super::*;

    /// A body that records whether it was read.
    struct Watched(Arc<AtomicBool>);

    impl Body for Watched {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.store(true, Ordering::SeqCst);
            Poll::Ready(None)
        }
    }

    /// Returns the status and the text of the answer, whether the body was read, and how many requests were counted.
    async fn ask(
        accepted: &AcceptedSecrets,
        method: Method,
        target: &str,
    ) -> (StatusCode, String, bool, u64) {
        let inner = service_fn(|request: Request<Watched>| async move {
            let seen = request.uri().to_string();
            request.into_body().collect().await?;
            Ok::<_, Infallible>(Response::new(Full::from(seen)))
        });
        let was_read = Arc::new(AtomicBool::new(false));
        let metrics = SecretPathMetrics::default();
        let request = Request::builder().method(method).uri(target).body(Watched(was_read.clone())).unwrap();
        let guard = SecretPathGuard::new(inner, accepted.clone(), metrics.clone());
        let response = guard.call(request).await.unwrap();
        let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
        let text = String::from_utf8(body.to_vec()).unwrap();
        (status, text, was_read.load(Ordering::SeqCst), metrics.refused.get())
    }

    #[tokio::test]
    async fn a_forged_review_is_answered_404_before_its_body_is_read() {
        let accepted = AcceptedSecrets::default();
        let [known, other] = [1, 2].map(|number| PathSecret::of_random([number; 32]));
        for state in ["no secret is known", "another secret is known"] {
            for target in ["/evict", "/delete", "/", "//delete", "/delete?timeout=1s", &other.path("/delete")]
            {
                let answer = ask(&accepted, Method::POST, target).await;
                let expected = (StatusCode::NOT_FOUND, String::new(), false, 1);
                assert_eq!(answer, expected, "{state}: {target}");
            }
            accepted.replace(vec![known.clone()]);
        }
        assert_eq!(
            ask(&accepted, Method::GET, "/").await.3,
            0,
            "the self-check of the process is not counted"
        );
    }

    #[test]
    fn the_answer_to_an_unknown_path_does_not_wait_for_its_client() {
        assert!(not_found().body().is_end_stream());
    }

    #[tokio::test]
    async fn the_service_behind_it_does_not_see_the_secret() {
        let accepted = AcceptedSecrets::default();
        let secret = PathSecret::of_random([1; 32]);
        accepted.replace(vec![secret.clone()]);
        let target = format!("{}?timeout=10s", secret.path("/delete"));
        let answer = ask(&accepted, Method::POST, &target).await;
        assert_eq!(answer, (StatusCode::OK, "/delete?timeout=10s".to_owned(), true, 0));
    }
}
