//! The HTTP client: one connection for each request, with limits on time and size.
//!
//! Connections are not reused: a server that closes one at the moment of the next request would look like a webhook
//! that failed. Redirects are not followed, and proxies are not used: every connection goes through the
//! [address policy](podward_runtime::address_policy).

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use hyper::http::response::Parts;
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use podward_api::pod_transition_rule::{WebhookUrl, ca_certificates};
use podward_api::shortened;
use podward_runtime::address_policy::{DialError, GuardedConnector, GuardedDialer};
use podward_runtime::error_chain;
use podward_runtime::grpc_client::system_anchors;
use podward_runtime::tls::server_verifier;
use rustls::{ClientConfig, RootCertStore};

use super::wire::{AnswerProblem, HiddenReason, WebhookFailure};

/// For a whole call, as by KusionStack.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// In bytes. An answer contains little more than the names of pods.
const MAX_ANSWER: usize = 1 << 20;
/// In bytes.
const MAX_HEADERS: usize = 64 << 10;
/// In bytes. Longer media types do not exist.
const MAX_MEDIA_TYPE: usize = 64;

/// The text for an address that the address policy refuses. It does not say which address a name has.
const NOT_ALLOWED: &str = "its host has no address that rules may lead to (not that of the API server, of Podward's own \
                           host, a link-local one or that of a metadata service); an administrator can allow \
                           networks with global.allowedAddresses of the chart";
/// The text for a call that has to wait until addresses can be checked.
const NOT_KNOWN: &str = "the addresses of the API server, which rules must not lead to, are not known yet";

/// A URL, and a client that trusts the certificates of its `caBundle`.
#[derive(Clone, Debug)]
pub(super) struct WebhookEndpoint {
    url: WebhookUrl,
    client: Client<HttpsConnector<GuardedConnector>, Full<Bytes>>,
    timeout: Duration,
}

impl WebhookEndpoint {
    /// Returns the endpoint for a URL of a rule and its `caBundle`. `dialer` opens the connections.
    ///
    /// # Errors
    /// When the URL or the bundle is invalid.
    pub(super) fn new(
        url: &str,
        ca_bundle: &str,
        timeout: Duration,
        dialer: &GuardedDialer,
    ) -> Result<Self, WebhookFailure> {
        let unusable = |problem: String| {
            WebhookFailure::Webhook(format!("{} can't be called: {problem}", shortened(url, 200)))
        };
        let url = WebhookUrl::parse(url).map_err(unusable)?;
        let tls = tls(ca_bundle, url.is_https()).map_err(unusable)?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(GuardedConnector::new(dialer.clone(), CONNECT_TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(MAX_HEADERS)
            .build(connector);
        Ok(Self { url, client, timeout })
    }

    pub(super) fn url(&self) -> &WebhookUrl {
        &self.url
    }

    /// Sends JSON, and returns the answer. With `traceparent` the webhook's spans become part of Podward's
    /// trace.
    ///
    /// # Errors
    /// When the address is not allowed, there is no answer in time, or one with another status than 2xx. The text does
    /// not tell an open port from a closed one, and contains nothing of the answer.
    pub(super) async fn post(
        &self,
        body: Vec<u8>,
        traceparent: Option<String>,
    ) -> Result<WebhookResponse, WebhookFailure> {
        self.call(Method::POST, self.url.uri().clone(), Bytes::from(body), traceparent).await
    }

    /// Asks for the progress of a task. Fails like [`post`](Self::post).
    pub(super) async fn poll(&self, key: &str, task: &str) -> Result<WebhookResponse, WebhookFailure> {
        self.call(Method::GET, self.url.for_task(key, task), Bytes::new(), None).await
    }

    async fn call(
        &self,
        method: Method,
        uri: Uri,
        body: Bytes,
        traceparent: Option<String>,
    ) -> Result<WebhookResponse, WebhookFailure> {
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
            let response =
                self.client.request(request).await.map_err(|error| match DialError::among(&error) {
                    Some(DialError::NotAllowed { .. }) => WebhookFailure::NotAllowed(HiddenReason {
                        text: described(NOT_ALLOWED.to_owned()),
                        reason: error_chain(&error),
                    }),
                    Some(DialError::ApiServerUnknown | DialError::ApiServerName { .. }) => {
                        tracing::warn!(
                            reason = error_chain(&error),
                            "a webhook of a rule can't be called yet"
                        );
                        WebhookFailure::Local(described(NOT_KNOWN.to_owned()))
                    }
                    _ => WebhookFailure::Unreachable(self.no_answer(&described, error_chain(&error))),
                })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| {
                failed(match error.downcast_ref::<LengthLimitError>() {
                    Some(_) => format!("its answer is larger than {MAX_ANSWER} bytes"),
                    None => "its answer was cut off".to_owned(),
                })
            })?;
            let body = body.to_bytes();
            let summary = described(format!("it answered {}", summary(&head, body.len())));
            match head.status.is_success() {
                true => Ok(WebhookResponse { summary, body }),
                false if head.status.is_redirection() => {
                    Err(WebhookFailure::Webhook(format!("{summary}; redirects are not followed")))
                }
                false => Err(WebhookFailure::Webhook(summary)),
            }
        };
        let late = || self.no_answer(&described, format!("no complete answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(WebhookFailure::Late(late())))
    }

    /// Returns the one text for all the reasons why there is no HTTP answer: no address, a closed port, an open port of
    /// something else, a certificate that is not trusted, a server that is too slow.
    fn no_answer(&self, described: &impl Fn(String) -> String, reason: String) -> HiddenReason {
        let server = self.url.uri().authority().map(ToString::to_string).unwrap_or_default();
        let (server, timeout) = (shortened(&server, 200), self.timeout);
        let text = described(format!(
            "could not connect to {server}, or it gave no valid answer within {timeout:?}; the log of the \
             lifecycle-controller has the reason"
        ));
        HiddenReason { text, reason }
    }
}

/// The answer of a webhook with a status of 2xx.
#[derive(Debug)]
pub(super) struct WebhookResponse {
    /// The request, the status, the media type and the length.
    summary: String,
    body: Bytes,
}

impl WebhookResponse {
    /// Reads the body.
    ///
    /// # Errors
    /// When `read` fails. The text contains the summary of the answer, and nothing of its body.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&[u8]) -> Result<T, AnswerProblem>,
    ) -> Result<T, WebhookFailure> {
        let unusable = |problem| WebhookFailure::Webhook(format!("{}: {problem}", self.summary));
        read(&self.body).map_err(unusable)
    }
}

/// Returns the status, the media type and the length of an answer.
fn summary(head: &Parts, length: usize) -> String {
    let value = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+/".contains(c);
    let media_type = match media_type {
        "" => "no media type",
        valid if valid.len() <= MAX_MEDIA_TYPE && valid.chars().all(is_valid) => valid,
        _ => "an invalid media type",
    };
    format!("{} ({media_type}, {length} bytes)", head.status)
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
