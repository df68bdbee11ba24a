//! Tokens of service accounts, and kubeconfigs that carry them, so that a service has the rights that its manifests give it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::NAMESPACE;
use crate::cluster::Cluster;

/// How long a token is good for: longer than any test or demo, shorter than one would forget it.
const SECONDS: i64 = 24 * 3600;

/// How a service proves who it is.
#[derive(Debug)]
pub(super) struct Account {
    /// The token alone, as the kubelet would mount it.
    pub(super) token: PathBuf,
    /// A kubeconfig that names the file of the token.
    pub(super) kubeconfig: PathBuf,
}

/// Gets a token of the service account `name` and writes both files. Every service that is started gets a new token; those that
/// share the account read it from the same file, as it was rotated.
pub(super) async fn of(cluster: &Cluster, name: &str) -> Result<Account> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("get a token of the service account {NAMESPACE}/{name}"))?;
    let token =
        answer.status.with_context(|| format!("no token of the service account {NAMESPACE}/{name}"))?.token;
    let account = Account {
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
