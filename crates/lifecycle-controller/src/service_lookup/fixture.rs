//! An API server with Services of the namespace `shop`, for tests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use podward_support::api_answers::{Answer, failure, json_answer};
use serde_json::{Value, json};

/// The server. Its lists have one Service on each page.
pub(crate) struct ServiceApi(Arc<State>);

struct State {
    services: Vec<(String, Value)>,
    /// The page of the list that fails because its token has expired.
    expired_page: Option<usize>,
    requests: AtomicUsize,
}

impl ServiceApi {
    /// Returns a server with Services of these names and selectors.
    pub(crate) fn new<const N: usize>(services: [(&str, Value); N]) -> Self {
        Self::with_expired_page(services, None)
    }

    /// As [`ServiceApi::new`]. The request for the page `expired_page` fails.
    pub(crate) fn with_expired_page<const N: usize>(
        services: [(&str, Value); N],
        expired_page: Option<usize>,
    ) -> Self {
        let services = services.map(|(name, selector)| (name.to_owned(), selector)).to_vec();
        ServiceApi(Arc::new(State { services, expired_page, requests: AtomicUsize::default() }))
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Returns a client of the server.
    pub(crate) fn client(&self) -> Client {
        let state = self.0.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = state.answer(&request);
            async { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "shop")
    }
}

impl State {
    fn answer(&self, request: &Request<Body>) -> Answer {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let query = request.uri().query().unwrap_or_default();
        match request.uri().path().trim_start_matches("/api/v1/namespaces") {
            "" => json_answer(&json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {},
                "items": [{"metadata": {"name": "shop"}}],
            })),
            "/shop/services" => self.page(query),
            path => {
                let name = path.strip_prefix("/shop/services/").expect("another path");
                match self.services.iter().find(|(other, _)| other == name) {
                    Some(found) => json_answer(&service(found)),
                    None => failure(StatusCode::NOT_FOUND, "NotFound"),
                }
            }
        }
    }

    fn page(&self, query: &str) -> Answer {
        assert!(query.contains("limit="), "{query}");
        let token = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        let page: usize = token.map_or(0, |token| token.parse().unwrap());
        if self.expired_page == Some(page) {
            return failure(StatusCode::GONE, "Expired");
        }
        let next = if page + 1 < self.services.len() { (page + 1).to_string() } else { String::new() };
        let items: Vec<Value> = self.services.get(page).map(service).into_iter().collect();
        let metadata = json!({"resourceVersion": "1", "continue": next});
        json_answer(&json!({"apiVersion": "v1", "kind": "ServiceList", "metadata": metadata, "items": items}))
    }
}

fn service((name, selector): &(String, Value)) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": selector},
    })
}
