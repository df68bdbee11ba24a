//! Helpers of several tests.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podward_core::webhook_path::PathSecret;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Waits for `future`, which must not take longer than `limit`.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> F::Output {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("it did not happen within {limit:?}"),
    }
}

/// A self-signed certificate and its key, in a directory laid out like a Secret volume.
pub(crate) struct Secret {
    dir: tempfile::TempDir,
    versions: usize,
}

impl Secret {
    pub(crate) fn new() -> (Self, CertificateDer<'static>) {
        let mut secret = Self { dir: tempfile::tempdir().unwrap(), versions: 0 };
        let cert = secret.rotate();
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), secret.dir.path().join(name)).unwrap();
        }
        (secret, cert)
    }

    /// Writes a new pair as the kubelet does: a new directory, and one swapped symlink.
    pub(crate) fn rotate(&mut self) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        self.versions += 1;
        let version = format!("..{}", self.versions);
        let path = self.dir.path().join(&version);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("tls.crt"), made.cert.pem()).unwrap();
        fs::write(path.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        symlink(&version, self.dir.path().join("..tmp")).unwrap();
        fs::rename(self.dir.path().join("..tmp"), self.dir.path().join("..data")).unwrap();
        made.cert.der().clone()
    }

    pub(crate) fn cert(&self) -> PathBuf {
        self.dir.path().join("tls.crt")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.dir.path().join("tls.key")
    }
}

/// A file with a secret of webhook paths.
pub(crate) struct PathFile {
    file: tempfile::NamedTempFile,
    secret: PathSecret,
}

impl PathFile {
    pub(crate) fn new() -> Self {
        let (file, secret) = (tempfile::NamedTempFile::new().unwrap(), PathSecret::of_random([7; 32]));
        fs::write(file.path(), secret.reveal()).unwrap();
        Self { file, secret }
    }

    pub(crate) fn file(&self) -> &str {
        self.file.path().to_str().unwrap()
    }

    pub(crate) fn path(&self, route: &str) -> String {
        self.secret.path(route)
    }
}

/// Connects over TLS to `address`, trusting `cert` alone, offering `protocol`.
pub(crate) async fn connect(
    address: SocketAddr,
    cert: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_from(Ipv4Addr::LOCALHOST, address, cert, protocol).await
}

/// As [`connect`], with a certificate of the client and its key.
pub(crate) async fn connect_as(
    client: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    address: SocketAddr,
    cert: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_with(client, Ipv4Addr::LOCALHOST, address, cert, protocol).await
}

/// As [`connect`], from the address `own`.
pub(crate) async fn connect_from(
    own: Ipv4Addr,
    address: SocketAddr,
    cert: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_with(None, own, address, cert, protocol).await
}

async fn connect_with(
    client: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    own: Ipv4Addr,
    address: SocketAddr,
    cert: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let socket = TcpSocket::new_v4()?;
    socket.bind((own, 0).into())?;
    let socket = socket.connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), socket).await
}

pub(crate) async fn http1(stream: TlsStream<TcpStream>) -> http1::SendRequest<Full<Bytes>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) async fn http2(stream: TlsStream<TcpStream>) -> http2::SendRequest<Full<Bytes>> {
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://localhost{path}"))
        .header("content-type", "application/json")
        .header("host", "localhost")
        .body(Full::new(body.into()))
        .unwrap()
}

pub(crate) async fn text(response: Response<hyper::body::Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
