//! The HTTP client: one request on a connection of its own, within a time and a size.
//!
//! Connections are not kept: one that the server closes at the moment of the next request would look like a webhook that failed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use podward_api::pod_transition_rule::{WebhookUrl, ca_certificates};
use podward_runtime::grpc_client::system_anchors;
use rustls::{ClientConfig, RootCertStore};

use super::answer::Failure;
use super::shortened;

/// For a whole call, as by KusionStack.
pub(super) const CALL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
/// An answer names pods at most.
const LARGEST_ANSWER: usize = 1 << 20;
const LARGEST_HEADERS: usize = 64 << 10;

/// A URL, and whom to believe there.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: WebhookUrl,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    limit: Duration,
}

impl Endpoint {
    /// An endpoint for a rule's URL and its `caBundle`.
    pub(super) fn new(url: &str, ca_bundle: &str, limit: Duration) -> Result<Self, Failure> {
        let unusable =
            |problem: String| Failure::Webhook(format!("{} can't be asked: {problem}", shortened(url, 200)));
        let url = WebhookUrl::parse(url).map_err(unusable)?;
        let tls = tls(ca_bundle, url.is_https()).map_err(unusable)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(LARGEST_HEADERS)
            .build(connector);
        Ok(Self { url, client, limit })
    }

    pub(super) fn url(&self) -> &WebhookUrl {
        &self.url
    }

    /// Sends JSON, and gives the body of the answer. `traceparent` makes the webhook's own spans parts of ours.
    pub(super) async fn post(&self, body: Vec<u8>, traceparent: Option<String>) -> Result<Bytes, Failure> {
        self.call(Method::POST, self.url.uri().clone(), Bytes::from(body), traceparent).await
    }

    /// Asks how a task is going.
    pub(super) async fn poll(&self, key: &str, task: &str) -> Result<Bytes, Failure> {
        self.call(Method::GET, self.url.for_task(key, task), Bytes::new(), None).await
    }

    async fn call(
        &self,
        method: Method,
        uri: Uri,
        body: Bytes,
        traceparent: Option<String>,
    ) -> Result<Bytes, Failure> {
        let words =
            |problem: String| format!("{method} {uri}: {problem}", uri = shortened(&uri.to_string(), 300));
        let failed = |problem: String| Failure::Webhook(words(problem));
        let mut request = Request::builder()
            .method(method.clone())
            .uri(uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("podward/", env!("CARGO_PKG_VERSION")));
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let request = request.body(Full::new(body)).map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
                true => Failure::Unreachable(words(chain(&error))),
                false => failed(chain(&error)),
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(|error| {
                failed(match error.downcast_ref::<LengthLimitError>() {
                    Some(_) => format!("its answer is larger than {LARGEST_ANSWER} bytes"),
                    None => format!("its answer was cut off: {}", chain(error.as_ref())),
                })
            })?;
            judge(&Response::from_parts(head, ()), body.to_bytes()).map_err(failed)
        };
        match tokio::time::timeout(self.limit, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Late(words(format!("no answer within {:?}", self.limit)))),
        }
    }
}

fn judge(head: &Response<()>, body: Bytes) -> Result<Bytes, String> {
    let status = head.status();
    if status.is_success() {
        return Ok(body);
    }
    if let Some(location) = head.headers().get(LOCATION).filter(|_| status.is_redirection()) {
        let location = shortened(&String::from_utf8_lossy(location.as_bytes()), 200);
        return Err(format!("it answered {status}, to {location:?}; redirects are not followed"));
    }
    Err(format!("it answered {status}: {:?}", shortened(&String::from_utf8_lossy(&body), 200)))
}

fn tls(ca_bundle: &str, is_needed: bool) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let certificates = ca_certificates(ca_bundle)?;
    if certificates.is_empty() && is_needed {
        roots.roots = system_anchors().map_err(|error| error.to_string())?.to_vec();
    }
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate of its caBundle is no authority: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// What an error and those behind it say, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}
