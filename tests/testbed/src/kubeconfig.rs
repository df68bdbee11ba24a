//! Kubeconfigs, written as JSON, which every reader of YAML reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    error::{During, TestClusterError},
    pki::name,
};

/// Writes a kubeconfig for the client certificate `NAME.crt` in the folder of the PKI.
pub(crate) fn write(pki: &Path, path: &Path, server: &str, user: &str) -> Result<PathBuf, TestClusterError> {
    let file = |name: &str, extension: &str| pki.join(format!("{name}.{extension}"));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority": file(name::CA, "crt")}}],
        "users": [{"name": user, "user": {"client-certificate": file(user, "crt"), "client-key": file(user, "key")}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": user}}],
        "current-context": "cluster",
    });
    fs::write(path, format!("{config:#}\n")).during(|| format!("write {}", path.display()))?;
    Ok(path.to_owned())
}
