//! The HTTP client: one connection for each request, with limits on time and size.
//!
//! Connections are not reused: a server that closes one at the moment of the next request would look like a webhook
//! that failed.

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
use podward_runtime::tls::server_verifier;
use rustls::{ClientConfig, RootCertStore};

use super::super::text::shortened;
use super::wire::WebhookFailure;

/// For a whole call, as by KusionStack.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// In bytes. An answer contains little more than the names of pods.
const MAX_ANSWER: usize = 1 << 20;
/// In bytes.
const MAX_HEADERS: usize = 64 << 10;

/// A URL, and a client that trusts the certificates of its `caBundle`.
#[derive(Clone, Debug)]
pub(super) struct WebhookEndpoint {
    url: WebhookUrl,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
}

impl WebhookEndpoint {
    /// Returns the endpoint for a URL of a rule and its `caBundle`.
    ///
    /// # Errors
    /// When the URL or the bundle is invalid.
    pub(super) fn new(url: &str, ca_bundle: &str, timeout: Duration) -> Result<Self, WebhookFailure> {
        let unusable = |problem: String| {
            WebhookFailure::Webhook(format!("{} can't be called: {problem}", shortened(url, 200)))
        };
        let url = WebhookUrl::parse(url).map_err(unusable)?;
        let tls = tls(ca_bundle, url.is_https()).map_err(unusable)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(MAX_HEADERS)
            .build(connector);
        Ok(Self { url, client, timeout })
    }

    pub(super) fn url(&self) -> &WebhookUrl {
        &self.url
    }

    /// Sends JSON, and returns the body of the answer. With `traceparent` the webhook's spans become part of Podward's
    /// trace.
    ///
    /// # Errors
    /// When there is no answer in time, or one with another status than 2xx.
    pub(super) async fn post(
        &self,
        body: Vec<u8>,
        traceparent: Option<String>,
    ) -> Result<Bytes, WebhookFailure> {
        self.call(Method::POST, self.url.uri().clone(), Bytes::from(body), traceparent).await
    }

    /// Asks for the progress of a task. Fails like [`post`](Self::post).
    pub(super) async fn poll(&self, key: &str, task: &str) -> Result<Bytes, WebhookFailure> {
        self.call(Method::GET, self.url.for_task(key, task), Bytes::new(), None).await
    }

    async fn call(
        &self,
        method: Method,
        uri: Uri,
        body: Bytes,
        traceparent: Option<String>,
    ) -> Result<Bytes, WebhookFailure> {
        let described =
            |problem: String| format!("{method} {uri}: {problem}", uri = shortened(&uri.to_string(), 300));
        let failed = |problem: String| WebhookFailure::Webhook(described(problem));
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
                true => WebhookFailure::Unreachable(described(chain(&error))),
                false => failed(chain(&error)),
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| {
                failed(match error.downcast_ref::<LengthLimitError>() {
                    Some(_) => format!("its answer is larger than {MAX_ANSWER} bytes"),
                    None => format!("its answer was cut off: {}", chain(error.as_ref())),
                })
            })?;
            body_of_success(&Response::from_parts(head, ()), body.to_bytes()).map_err(failed)
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(WebhookFailure::Late(described(format!("no answer within {:?}", self.timeout)))),
        }
    }
}

/// Returns the body of an answer with a status of 2xx; the problem of any other.
fn body_of_success(head: &Response<()>, body: Bytes) -> Result<Bytes, String> {
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
    let certificates = ca_certificates(ca_bundle)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    if !certificates.is_empty() {
        let verifier = server_verifier(certificates).map_err(|error| format!("its caBundle: {error}"))?;
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    if is_needed {
        roots.roots = system_anchors().map_err(|error| error.to_string())?.to_vec();
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the texts of an error and its sources, without repetitions.
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
