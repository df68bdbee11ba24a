//! The files of one example: certificates and the files of the balancer. The test acts as the balancer.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with the files of an example. Dropping it removes the folder.
pub(crate) struct Files {
    dir: TempDir,
}

impl Files {
    /// Creates certificates for 127.0.0.1, and no files of the balancer.
    pub(crate) fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Some TLS libraries treat a certificate as self-signed if it has the name of its issuer.
        params.distinguished_name.push(DnType::CommonName, "ca");
        files.write("ca.crt", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        files.write("tls.crt", &params.signed_by(&key, &issuer).unwrap().pem());
        files.write("tls.key", &key.serialize_pem());
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path of a file as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        // Replace the file atomically, as the examples do.
        let new = self.path(&format!("{name}.test"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Writes the report of the balancer: the generation that it has applied, and the open connections by address.
    pub(crate) fn report(&self, generation: u64, connections: &[(&str, u64)]) {
        let connections: serde_json::Map<_, _> =
            connections.iter().map(|(address, open)| ((*address).to_owned(), json!(open))).collect();
        self.write("report.json", &json!({"generation": generation, "connections": connections}).to_string());
    }

    /// Returns the backends that the example has written.
    pub(crate) fn backends(&self) -> Value {
        serde_json::from_str(&self.text("backends.json")).unwrap()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.backends()["generation"].as_u64().unwrap()
    }

    /// Returns the arguments of all examples.
    pub(crate) fn balancer_args(&self) -> Vec<String> {
        ["--backends".to_owned(), self.arg("backends.json"), "--report".to_owned(), self.arg("report.json")]
            .into()
    }

    /// Returns the arguments of all servers.
    pub(crate) fn server_args(&self) -> Vec<String> {
        let own =
            ["--bind".to_owned(), "127.0.0.1:0".to_owned(), "--tls-cert".to_owned(), self.arg("tls.crt")];
        let key = ["--tls-key".to_owned(), self.arg("tls.key")];
        own.into_iter().chain(key).chain(self.balancer_args()).collect()
    }
}
