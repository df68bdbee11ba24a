//! The files of one example: certificates, and the two of the balancer. The test is the balancer.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with what an example needs; it goes with this value.
pub(crate) struct Files {
    dir: TempDir,
}

impl Files {
    /// Certificates for 127.0.0.1, and nothing of the balancer yet.
    pub(crate) fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate whose issuer has its own name looks self-signed to some.
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

    /// The path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        // As the examples do: whoever reads it sees the old file or the new one.
        let new = self.path(&format!("{name}.test"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The balancer says which generation it has taken in, and how many connections are open at an address.
    pub(crate) fn report(&self, generation: u64, connections: &[(&str, u64)]) {
        let connections: serde_json::Map<_, _> =
            connections.iter().map(|(address, open)| ((*address).to_owned(), json!(open))).collect();
        self.write("report.json", &json!({"generation": generation, "connections": connections}).to_string());
    }

    /// What the balancer is to serve.
    pub(crate) fn backends(&self) -> Value {
        serde_json::from_str(&self.text("backends.json")).unwrap()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.backends()["generation"].as_u64().unwrap()
    }

    /// The arguments that every example takes.
    pub(crate) fn balancer_args(&self) -> Vec<String> {
        ["--backends".to_owned(), self.arg("backends.json"), "--report".to_owned(), self.arg("report.json")]
            .into()
    }

    /// And every server.
    pub(crate) fn server_args(&self) -> Vec<String> {
        let own =
            ["--bind".to_owned(), "127.0.0.1:0".to_owned(), "--tls-cert".to_owned(), self.arg("tls.crt")];
        let key = ["--tls-key".to_owned(), self.arg("tls.key")];
        own.into_iter().chain(key).chain(self.balancer_args()).collect()
    }
}
