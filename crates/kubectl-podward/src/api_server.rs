//! A stand-in API server, for tests.

use std::convert::Infallible;
use std::future::pending;

use futures::FutureExt;
use hyper::Request;
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use podward_support::api_answers::Answer;

/// Returns a client whose requests `answer` answers. A request for which it returns `None` never has an answer. The default
/// namespace is `shop`.
pub(crate) fn client(answer: impl Fn(&Request<Bytes>) -> Option<Answer> + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().now_or_never().unwrap().unwrap();
        let answer = answer(&Request::from_parts(parts, body));
        async {
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => pending().await,
            }
        }
    });
    Client::new(service, "shop")
}
