//! An HTTPS webhook of a test, with an authority of its own. Podward's services can reach it.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use podward_e2e::Fixture;
use podward_support::{Cluster, ExposedServer, WAIT, within};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::{
    net::UnixListener,
    sync::{Mutex, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::hooks::server::unique;

/// A request to the webhook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WebhookRequest {
    pub(super) method: String,
    pub(super) path: String,
    /// The content type, or an empty string.
    pub(super) query: String,
    pub(super) content_type: String,
    /// The body, or null if there is none or it is not JSON.
    pub(crate) body: Value,
}

impl WebhookRequest {
    /// Returns the names of the pods in the request. A poll has none.
    pub(super) fn pods(&self) -> Vec<&str> {
        let resources = self.body["resources"].as_array().into_iter().flatten();
        resources.filter_map(|resource| resource["name"].as_str()).collect()
    }

    /// Returns whether it is a first request. Otherwise it is a poll.
    pub(super) fn is_first(&self) -> bool {
        self.method == "POST"
    }
}

/// A reply, or what happens instead of one.
#[derive(Clone, Debug)]
pub(crate) enum WebhookReply {
    /// The status 200, and this body.
    Json(Value),
    /// This status, and this text.
    Text(u16, &'static str),
    /// No reply, until the script changes.
    Silent,
}

type WebhookScript = Arc<dyn Fn(&WebhookRequest) -> WebhookReply + Send + Sync>;

/// A webhook with a script. It serves from the start. By default it approves everything.
pub(crate) struct RuleWebhook {
    cluster: Cluster,
    authority: String,
    at: SocketAddr,
    socket: PathBuf,
    state: Arc<WebhookState>,
    port: Mutex<Option<ExposedServer>>,
    server: JoinHandle<()>,
}

struct WebhookState {
    script: watch::Sender<WebhookScript>,
    log: watch::Sender<Vec<WebhookRequest>>,
}

impl RuleWebhook {
    /// Starts the webhook.
    pub(crate) async fn start(fixture: &Fixture) -> Result<Self> {
        let cluster = fixture.cluster().clone();
        let mut at = cluster.free_address().await?;
        if fixture.installation().is_err() {
            // Services that are processes may call webhooks on loopback only.
            at.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let (acceptor, authority) = tls(&at.ip().to_string())?;
        let socket = cluster.dir().join(format!("{}.sock", unique("rule")));
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let approve: WebhookScript = Arc::new(|_| approved());
        let state =
            Arc::new(WebhookState { script: watch::Sender::new(approve), log: watch::Sender::default() });
        let server = tokio::spawn(serve(listener, acceptor, state.clone()));
        let webhook = Self { cluster, authority, at, socket, state, port: Mutex::default(), server };
        webhook.come_back().await?;
        Ok(webhook)
    }

    /// Sets the script. It also answers requests that are kept waiting.
    pub(crate) fn answer(&self, script: impl Fn(&WebhookRequest) -> WebhookReply + Send + Sync + 'static) {
        self.state.script.send_replace(Arc::new(script));
    }

    /// Returns all requests so far.
    pub(super) fn log(&self) -> Vec<WebhookRequest> {
        self.state.log.borrow().clone()
    }

    /// Returns the first requests so far.
    pub(super) fn first_requests(&self) -> Vec<WebhookRequest> {
        self.log().into_iter().filter(WebhookRequest::is_first).collect()
    }

    /// Waits until `test` is true for the requests.
    pub(super) async fn until(
        &self,
        what: &str,
        mut test: impl FnMut(&[WebhookRequest]) -> bool,
    ) -> Result<Vec<WebhookRequest>> {
        let mut log = self.state.log.subscribe();
        let reached =
            async { Ok(log.wait_for(|log| test(log)).await.context("the webhook is gone")?.clone()) };
        let reached = within(WAIT, || what.to_owned(), reached).await;
        reached.with_context(|| format!("the webhook was asked {:?}", self.log()))
    }

    /// Closes all connections and accepts no more.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        match self.port.lock().await.take() {
            Some(port) => port.end().await,
            None => Ok(()),
        }
    }

    /// Accepts connections again, at the same address.
    pub(super) async fn come_back(&self) -> Result<()> {
        let port = self.cluster.expose(self.at, &self.socket).await?;
        *self.port.lock().await = Some(port);
        Ok(())
    }

    /// Returns the URL of `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.at)
    }

    /// Returns its authority in the format of rules.
    pub(crate) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.authority)
    }

    /// Returns a rule that calls it.
    pub(super) fn rule(&self, name: &str, failure_policy: &str) -> Value {
        json!({
            "name": name,
            "webhook": {
                "clientConfig": {"url": self.url("/check"), "caBundle": self.ca_bundle()},
                "failurePolicy": failure_policy,
            },
        })
    }

    /// Returns a rule that calls it, and polls `path` every second.
    pub(super) fn polling_rule(&self, name: &str, path: &str, key: &str) -> Value {
        let mut rule = self.rule(name, "Fail");
        rule["webhook"]["clientConfig"]["poll"] = json!({
            "url": self.url(path),
            "rawQueryKey": key,
            "caBundle": self.ca_bundle(),
            "intervalSeconds": 1,
            "timeoutSeconds": 120,
        });
        rule
    }
}

impl Drop for RuleWebhook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Returns the reply that approves everything.
pub(super) fn approved() -> WebhookReply {
    WebhookReply::Json(json!({"success": true, "message": "fine"}))
}

/// Returns the reply that rejects everything, for a reason.
pub(super) fn rejected(reason: &str) -> WebhookReply {
    WebhookReply::Json(json!({"success": false, "message": reason}))
}

/// Returns a certificate for a server at `name`, and the PEM of a new authority that signed it.
fn tls(name: &str) -> Result<(TlsAcceptor, String)> {
    let key = KeyPair::generate().context("make the key of an authority")?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the authority of a test");
    let authority = params.self_signed(&key).context("make an authority")?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().context("make the key of a server")?;
    let params = CertificateParams::new(vec![name.to_owned()]).context("describe a certificate")?;
    let certificate = params.signed_by(&key, &issuer).context("make a certificate")?;
    let key =
        PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| anyhow!("use the key: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("choose versions of TLS")?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .context("use the certificate")?;
    Ok((TlsAcceptor::from(Arc::new(config)), authority))
}

async fn serve(listener: UnixListener, acceptor: TlsAcceptor, state: Arc<WebhookState>) {
    // The connections end with the server.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), state.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| answer(state.clone(), request));
            let http = hyper::server::conn::http1::Builder::new();
            // A client may disconnect at any time.
            drop(http.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(
    state: Arc<WebhookState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let asked = WebhookRequest {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let mut script = state.script.subscribe();
    state.log.send_modify(|log| log.push(asked.clone()));
    loop {
        let now = script.borrow_and_update().clone();
        let (status, text) = match now(&asked) {
            WebhookReply::Json(value) => (200, value.to_string()),
            WebhookReply::Text(status, text) => (status, text.to_owned()),
            WebhookReply::Silent => match script.changed().await {
                Ok(()) => continue,
                Err(_) => std::future::pending().await,
            },
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
        return Ok(response);
    }
}
