//! Servers that are down or silent, sessions that end, users, TLS, and several servers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use podward_registries::{
    Change, Connection, Credentials, Instance, Registry, RegistryErrorKind, TlsOptions, ZooKeeper,
    ZooKeeperLayout, ZooKeeperOptions,
};
use registry_servers::{TestCertificates, ZooKeeperServer, ZooKeeperServerOptions};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::common::{self, connection, refused, service, write};

use super::other::{Lifetime, Other};
use super::{client, instance};

const LIMIT: Duration = Duration::from_secs(120);
/// An instance without a port, which is ignored.
const NO_PORT: &str = r#"{"address":"10.0.0.9"}"#;

fn curator(connection: &Connection) -> Result<ZooKeeper> {
    client(connection, ZooKeeperLayout::Curator)
}

async fn started(options: ZooKeeperServerOptions) -> Result<ZooKeeperServer> {
    ZooKeeperServer::start(options).await
}

/// Waits until an address shows `number` instances.
async fn until_shown(zookeeper: &ZooKeeper, address: usize, number: usize) -> Result<()> {
    let web = service("web");
    let shown = async {
        while !zookeeper.instances(address, &web).await.is_ok_and(|found| found.len() == number) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, shown).await.context("an address does not show it")
}

#[tokio::test]
async fn a_server_may_be_down_or_silent_and_a_session_may_expire() -> Result<()> {
    let expiry = Duration::from_secs(8);
    let options = ZooKeeperServerOptions { session_timeout: Some(expiry) };
    let mut server = started(options).await?;
    let zookeeper = curator(&connection(vec![server.address()]))?;
    let short = Connection { timeout: Duration::from_millis(300), ..connection(vec![server.address()]) };
    let impatient = curator(&short)?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    let register = Change::Register(web.clone(), wanted.clone());
    write(&zookeeper, register.clone()).await?;
    // Until it has a session in time.
    until_shown(&impatient, 0, 1).await?;

    server.process.pause()?;
    let error = refused(write(&impatient, Change::Register(web.clone(), instance("2", "10.0.0.8"))).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unknown, "{error}");
    let error = refused(impatient.instances(0, &web).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    // The sessions of all clients expire.
    tokio::time::sleep(expiry + Duration::from_secs(2)).await;
    server.process.resume()?;
    let served = async { while zookeeper.instances(0, &web).await.is_err() {} };
    tokio::time::timeout(LIMIT, served).await.context("no new session")?;
    // Whether it was made or not.
    write(&zookeeper, Change::Deregister(web.clone(), instance("2", "10.0.0.8"))).await?;

    // The end of the connection is one of the watch, which is then made again.
    zookeeper.changed(0, &[]).await?;
    server.process.stop().await?;
    tokio::time::timeout(LIMIT, zookeeper.changed(0, &[])).await.context("the end was not reported")??;
    for error in [
        refused(zookeeper.instances(0, &web).await)?,
        refused(zookeeper.services(0, "c1").await)?,
        refused(zookeeper.changed(0, &[]).await)?,
        refused(write(&zookeeper, register.clone()).await)?,
    ] {
        assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
        assert_eq!(error.address, server.address());
    }
    server.process.restart().await?;
    assert_eq!(common::only(zookeeper.instances(0, &web).await?)?.id, wanted.id);
    server.process.restart_empty().await?;
    assert_eq!(zookeeper.instances(0, &web).await?, []);
    write(&zookeeper, register).await?;
    assert_eq!(common::only(zookeeper.instances(0, &web).await?)?.id, wanted.id);
    Ok(())
}

#[tokio::test]
async fn users_and_certificates_are_checked() -> Result<()> {
    let server = started(ZooKeeperServerOptions::default()).await?;
    let with = |password: &str| {
        let credentials =
            Credentials::Password { user: "podward".to_owned(), password: password.to_owned().into() };
        Connection { credentials, ..connection(vec![server.address()]) }
    };
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    let zookeeper = curator(&with("sesame"))?;
    write(&zookeeper, Change::Register(web.clone(), wanted.clone())).await?;
    let stored = common::only(zookeeper.instances(0, &web).await?)?;
    let out = Instance { in_service: false, ..stored.clone() };
    // Everybody may read, nobody else may change.
    for denied in [curator(&with("wrong-password"))?, curator(&connection(vec![server.address()]))?] {
        assert_eq!(denied.instance(0, &web, &wanted).await?, Some(stored.clone()));
        for change in
            [Change::SetInService(web.clone(), out.clone()), Change::Deregister(web.clone(), stored.clone())]
        {
            let error = refused(write(&denied, change).await)?;
            assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
            assert!(!error.to_string().contains("wrong-password"), "{error}");
        }
        assert!(!format!("{denied:?}").contains("wrong-password"));
    }
    // Applications without the password register themselves beside ours, but cannot remove ours.
    let mut other = Other::connect(&server.address()).await?;
    other.create_one("/services/web/application", NO_PORT, Lifetime::Ephemeral).await?;
    other.create("/services/api/application", NO_PORT, Lifetime::Ephemeral).await?;
    assert!(other.delete("/services/web/web-1").await.is_err());
    write(&zookeeper, Change::SetInService(web.clone(), out)).await?;
    write(&zookeeper, Change::Deregister(web.clone(), wanted)).await?;
    assert_eq!(zookeeper.instances(0, &web).await?, []);

    let certificates = TestCertificates::new()?;
    let address = encrypted(&certificates, server.address()).await?;
    let tls = TlsOptions { authorities: Some(certificates.authority.clone()), identity: None };
    let with = |tls| curator(&Connection { tls, ..connection(vec![address.clone()]) });
    write(&with(Some(tls.clone()))?, Change::Register(web.clone(), instance("2", "10.0.0.8"))).await?;
    assert_eq!(with(Some(tls))?.instances(0, &web).await?.len(), 1);
    let unknown = TlsOptions { authorities: Some(TestCertificates::new()?.authority), identity: None };
    for refused_by in [with(Some(unknown))?, with(None)?] {
        let error = refused(refused_by.instances(0, &web).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    }
    Ok(())
}

/// Returns the address of a server that decrypts connections to `target`. ZooKeeper itself needs further libraries for TLS.
async fn encrypted(certificates: &TestCertificates, target: String) -> Result<String> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(certificates.certificate.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, target) = (acceptor.clone(), target.clone());
            tokio::spawn(async move {
                let mut client = acceptor.accept(stream).await?;
                let mut server = TcpStream::connect(target).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok(address)
}

#[tokio::test]
async fn every_address_shows_a_change() -> Result<()> {
    let mut servers = ZooKeeperServer::start_three().await?;
    let zookeeper = curator(&connection(servers.iter().map(ZooKeeperServer::address).collect()))?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    let register = Change::Register(web.clone(), wanted.clone());
    write(&zookeeper, register.clone()).await?;
    for address in 0..3 {
        // Also followers show at once what the leader has.
        let read =
            zookeeper.instance(address, &web, &wanted).await?.context("an address does not show it")?;
        assert_eq!(Instance { version: None, ..read }, wanted);
        let version = zookeeper.instance(0, &web, &wanted).await?.and_then(|read| read.version);
        assert_eq!(zookeeper.instance(address, &web, &wanted).await?.and_then(|it| it.version), version);
    }

    // Without one of three, writes go on, and its address shows nothing.
    servers[0].process.stop().await?;
    let out = Change::SetInService(web.clone(), Instance { in_service: false, ..wanted.clone() });
    let written = async {
        // Until there is a new leader.
        while write(&zookeeper, out.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, written).await.context("two of three accept no writes")?;
    let error = refused(zookeeper.instances(0, &web).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    assert_eq!(error.address, servers[0].address());

    // One of three does not serve.
    servers[1].process.stop().await?;
    let short: Vec<String> = servers.iter().map(ZooKeeperServer::address).collect();
    let alone = curator(&Connection { timeout: Duration::from_secs(5), ..connection(short) })?;
    let error = refused(alone.instance(2, &web, &wanted).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    let error = refused(write(&alone, register).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");

    servers[1].process.restart().await?;
    servers[0].process.restart().await?;
    for address in 0..3 {
        until_shown(&zookeeper, address, 1).await?;
        let read =
            zookeeper.instance(address, &web, &wanted).await?.context("an address does not show it")?;
        assert!(!read.in_service);
    }
    Ok(())
}

#[test]
fn unusable_options_are_rejected() {
    let options = ZooKeeperOptions::default();
    for address in ["127.0.0.1", ":2181", "http://a:2181", "a:port", "a:2181/path"] {
        assert!(ZooKeeper::new(&connection(vec![address.to_owned()]), &options).is_err(), "{address}");
    }
    let usable = connection(vec!["[::1]:2181".to_owned()]);
    assert!(ZooKeeper::new(&usable, &options).is_ok());
    let token = Connection { credentials: Credentials::Token("t".to_owned().into()), ..usable.clone() };
    assert!(ZooKeeper::new(&token, &options).is_err());
    let dubbo = |protocol: &str| ZooKeeperLayout::DubboInterfaces { protocol: protocol.to_owned() };
    for (layout, base) in
        [(dubbo(""), ""), (dubbo("a://b"), ""), (ZooKeeperLayout::Curator, "/a//b"), (dubbo("tri"), "..")]
    {
        assert!(ZooKeeper::new(&usable, &ZooKeeperOptions { layout, base: base.to_owned() }).is_err());
    }
}
