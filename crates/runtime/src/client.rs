//! The client of the API server.

use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{HeaderValue, InvalidHeaderValue, USER_AGENT};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::args::KubeArgs;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection without traffic for this time is probed. A watch says nothing for as long as nothing changes.
const KEEPALIVE_TIME: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 3;
/// A connection ends if what was sent, also a probe, is not acknowledged for this time.
#[cfg(target_os = "linux")]
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(8);

/// The client of the API server can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The given kubeconfig can't be used.
    #[error("could not use the kubeconfig {path:?}: {source}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: KubeconfigError,
    },
    /// No configuration was given, and none was found.
    #[error(
        "found no configuration for the API server: {0}; give --kubeconfig, or run in a pod with a service account"
    )]
    Infer(#[from] InferConfigError),
    /// The user agent is not a header value.
    #[error("the user agent is not a header value: {0}")]
    UserAgent(#[from] InvalidHeaderValue),
    /// The configuration can't be used.
    #[error("could not make a client for the API server {url}: {source}")]
    Client {
        /// The API server.
        url: String,
        /// The reason.
        source: kube::Error,
    },
}

/// Returns a client with the [configuration](config) of `args`.
///
/// # Errors
///
/// When there is no configuration that can be used.
pub async fn connect(args: &KubeArgs, service: &str, version: &str) -> Result<Client, ClientError> {
    with_config(config(args, service, version).await?)
}

/// Returns the configuration of a client with the user agent `podward-<service>/<version>`.
///
/// The client does not retry by itself: the default policy of kube tries up to 15 times with growing delays, so a
/// request could take minutes. Callers are level-triggered loops, and retry with what they know by then. It has no read
/// timeout, because a watch may be silent for long: see [`retry::api_call`](crate::retry::api_call).
///
/// # Errors
///
/// When there is no configuration that can be used.
pub async fn config(args: &KubeArgs, service: &str, version: &str) -> Result<Config, ClientError> {
    let config = match &args.kubeconfig {
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig { path: path.clone(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => Config::infer().await?,
    };
    prepared(config, service, version)
}

/// Returns `config` with the settings of [`config`](config()): for programs that read their kubeconfig in another way.
///
/// # Errors
///
/// When the user agent is not a header value.
pub fn prepared(mut config: Config, service: &str, version: &str) -> Result<Config, ClientError> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    let user_agent = HeaderValue::try_from(format!("podward-{service}/{version}"))?;
    config.headers.push((USER_AGENT, user_agent));
    Ok(config)
}

/// Returns a client with this configuration, which is [`prepared`].
///
/// Its connections end about 8 s after the API server, or a load balancer before it, has vanished without closing them, as
/// when a node loses power. So a watch does not take what it knows for up to date for minutes, and continues with another
/// API server.
///
/// # Errors
///
/// When the configuration can't be used.
pub fn with_config(config: Config) -> Result<Client, ClientError> {
    let url = config.cluster_url.to_string();
    let client = match &config.proxy_url {
        Some(_) => Client::try_from(config),
        None => direct(&config),
    };
    client.map_err(|source| ClientError::Client { url, source })
}

/// Returns a client as kube makes it, with probes on its connections.
fn direct(config: &Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE_TIME));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(ACKNOWLEDGEMENT_TIMEOUT));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the timer of the connection to this port on the loopback, from `/proc/net/tcp`: its kind, and in how many
    /// hundredths of a second it ends. Kind 2 is that of probes.
    fn timer(port: u16) -> (u8, u32) {
        let peer = format!("0100007F:{port:04X}");
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let timer = lines.find(|fields| fields[2] == peer).unwrap()[5].to_owned();
        let (kind, end) = timer.split_once(':').unwrap();
        (u8::from_str_radix(kind, 16).unwrap(), u32::from_str_radix(end, 16).unwrap())
    }

    #[tokio::test]
    async fn a_silent_connection_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
        let client = with_config(prepared(config, "test", "0").unwrap()).unwrap();
        let request = tokio::spawn(async move { Api::<Node>::all(client).get("a").await });
        let (connection, _) = listener.accept().await.unwrap();
        // The request has been received, so nothing is on the way any more.
        connection.readable().await.unwrap();
        let mut buffer = [0; 4096];
        while connection.try_read(&mut buffer).is_ok() {}
        let is_probed = async {
            while !matches!(timer(port), (2, 1..=500)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_probed).await.expect("there is no timer of probes");
        request.abort();
    }
}
