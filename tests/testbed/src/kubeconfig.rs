//! Kubeconfigs, written as JSON, which every reader of YAML reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    error::{BedError, During},
    pki::name,
};

/// Writes a kubeconfig for the client certificate `NAME.crt` in the folder of the PKI.
pub(crate) fn write(pki: &Path, path: &Path, server: &str, user: &str) -> Result<PathBuf, BedError> {
    let file = |name: &str, extension: &str| pki.join(format!("{name}.{extension}"));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": {"server": server, "certificate-authority": file(name::CA, "crt")}}],
        "users": [{"name": user, "user": {"client-certificate": file(user, "crt"), "client-key": file(user, "key")}}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": user}}],
        "current-context": "bed",
    });
    fs::write(path, format!("{config:#}\n")).during(|| format!("write {}", path.display()))?;
    Ok(path.to_owned())
}
