//! Tokens of service accounts, and kubeconfigs with them, so that a service has the rights of its manifests.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::options::NAMESPACE;
use crate::cluster::Cluster;

/// The lifetime of a token, in seconds. It is longer than any test or demo.
const SECONDS: i64 = 24 * 3600;

/// The identity of a service.
#[derive(Debug)]
pub(super) struct ServiceIdentity {
    /// The file with the token, as the kubelet mounts it.
    pub(super) token: PathBuf,
    /// A kubeconfig that refers to the file with the token.
    pub(super) kubeconfig: PathBuf,
}

/// Requests a token of the service account `name` and writes both files. Every start of a service requests a new
/// token. Services that share the account read it from the same file, as after a rotation.
pub(super) async fn of(cluster: &Cluster, name: &str) -> Result<ServiceIdentity> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("get a token of the service account {NAMESPACE}/{name}"))?;
    let token =
        answer.status.with_context(|| format!("no token of the service account {NAMESPACE}/{name}"))?.token;
    let account = ServiceIdentity {
        token: cluster.dir().join(format!("{name}.token")),
        kubeconfig: cluster.dir().join(format!("{name}.kubeconfig")),
    };
    crate::private_file(&account.token, &token)?;
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster.entry()?}],
        "users": [{"name": name, "user": {"tokenFile": account.token}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
        "current-context": "cluster",
    });
    crate::private_file(&account.kubeconfig, &config.to_string())?;
    Ok(account)
}
