//! The client of the API server.

use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{HeaderValue, InvalidHeaderValue, USER_AGENT};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::args::KubeArgs;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Returns a client with this configuration.
///
/// # Errors
///
/// When the configuration can't be used.
pub fn with_config(config: Config) -> Result<Client, ClientError> {
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| ClientError::Client { url, source })
}
