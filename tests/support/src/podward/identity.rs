//! Kubeconfigs that carry a service account's token, so that a service has the rights that its manifests give it.

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

/// Writes a kubeconfig for the service account `name` and tells where it is.
pub(super) async fn kubeconfig(cluster: &Cluster, name: &str) -> Result<PathBuf> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("get a token of the service account {NAMESPACE}/{name}"))?;
    let token =
        answer.status.with_context(|| format!("no token of the service account {NAMESPACE}/{name}"))?.token;
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster.entry()?}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
        "current-context": "cluster",
    });
    let path = cluster.dir().join(format!("{name}.kubeconfig"));
    crate::private_file(&path, &config.to_string())?;
    Ok(path)
}
