//! The connection to the API server.

use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{HeaderValue, InvalidHeaderValue, USER_AGENT};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::args::KubeArgs;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// There is no usable configuration for the API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The given kubeconfig can't be used.
    #[error("could not use the kubeconfig {path:?}: {source}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// Nothing was given and nothing found.
    #[error("found no way to the API server: {0}; give --kubeconfig, or run in a pod with a service account")]
    Infer(#[from] InferConfigError),
    /// The user agent is not a header value.
    #[error("the user agent is not a header value: {0}")]
    UserAgent(#[from] InvalidHeaderValue),
    /// The client could not be made of it.
    #[error("could not make a client for the API server {url}: {source}")]
    Client {
        /// The API server.
        url: String,
        /// Why.
        source: kube::Error,
    },
}

/// A client that calls itself `podward-<service>/<version>`.
///
/// It doesn't retry by itself: kube's own policy tries up to 15 times with growing pauses, which turns a call that a caller meant
/// to bound into minutes. Callers are level-triggered loops and retry with what they know by then. Nor does it time out reading,
/// as a watch may be silent for long: bound a call with [`tokio::time::timeout`].
///
/// # Errors
///
/// When there is no usable configuration.
pub async fn connect(args: &KubeArgs, service: &str, version: &str) -> Result<Client, ClientError> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig { path: path.clone(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => Config::infer().await?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    let user_agent = HeaderValue::try_from(format!("podward-{service}/{version}"))?;
    config.headers.push((USER_AGENT, user_agent));
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| ClientError::Client { url, source })
}
