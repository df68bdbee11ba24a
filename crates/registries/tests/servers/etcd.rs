//! The client of etcd against etcd.

mod formats;

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use podward_registries::{
    Change, Connection, Credentials, Etcd, EtcdOptions, Instance, InstanceVersion, Registry,
    RegistryErrorKind, TlsOptions,
};
use registry_servers::{EtcdServer, TestCertificates};
use serde_json::{Value, json};

use crate::common::{self, connection, owner, service, write};
use crate::http;

fn client(connection: &Connection) -> Result<Etcd> {
    let options = EtcdOptions { prefix: "/services".to_owned(), ..EtcdOptions::default() };
    Etcd::new(connection, &options).map_err(anyhow::Error::msg)
}

async fn started() -> Result<(EtcdServer, Etcd)> {
    let server = EtcdServer::start(None).await?;
    let etcd = client(&connection(vec![server.address()]))?;
    common::until_writable(&etcd).await?;
    Ok((server, etcd))
}

/// etcd stores no weights.
fn instance(uid: &str, host: &str) -> Instance {
    Instance { weight: 1.0, ..common::instance(uid, host) }
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// Writes a key as somebody else.
async fn put(server: &EtcdServer, key: &str, value: &str) -> Result<String> {
    let body = json!({"key": base64(key), "value": base64(value)});
    http::post(&format!("{}/v3/kv/put", server.url()), &body).await
}

#[tokio::test]
async fn an_instance_is_registered_and_removed() -> Result<()> {
    let (server, etcd) = started().await?;
    let (web, wanted) = (service("web"), instance("1", "fd00::7"));
    assert_eq!(etcd.instances(0, &web).await?, []);
    write(&etcd, Change::Register(web.clone(), wanted.clone())).await?;
    // The same again.
    write(&etcd, Change::Register(web.clone(), wanted.clone())).await?;
    let stored = common::only(etcd.instances(0, &web).await?)?;
    assert!(stored.version.is_some());
    assert_eq!(Instance { version: None, ..stored.clone() }, wanted);
    assert_eq!(stored.owner(), Some(owner("1")));
    assert_eq!(etcd.services(0, "c1").await?, std::slice::from_ref(&web));

    // What a resolver of gRPC for Go reads.
    let body = json!({"key": base64("/services/web/web-1")});
    let read = http::post(&format!("{}/v3/kv/range", server.url()), &body).await?;
    let read: Value = serde_json::from_str(&read)?;
    let value = STANDARD.decode(read["kvs"][0]["value"].as_str().context("no value")?)?;
    let expected = json!({"Op": 0, "Addr": "[fd00::7]:8080", "Metadata": wanted.metadata});
    assert_eq!(serde_json::from_slice::<Value>(&value)?, expected);

    let out = Instance { in_service: false, ..stored.clone() };
    let error = write(&etcd, Change::SetInService(web.clone(), out)).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Rejected, "{error}");
    write(&etcd, Change::Deregister(web.clone(), stored.clone())).await?;
    write(&etcd, Change::Deregister(web.clone(), stored)).await?;
    assert_eq!(etcd.instances(0, &web).await?, []);
    assert_eq!(etcd.services(0, "c1").await?, []);
    Ok(())
}

#[tokio::test]
async fn keys_of_others_are_not_overwritten() -> Result<()> {
    let (server, etcd) = started().await?;
    let web = service("web");
    put(&server, "/services/web/web-1", r#"{"Op":0,"Addr":"10.0.0.1:80"}"#).await?;
    put(&server, "/services/web/broken", "not an endpoint").await?;
    put(&server, "/services/web/api/x", r#"{"Op":0,"Addr":"10.0.0.2:80"}"#).await?;
    let foreign = common::only(etcd.instances(0, &web).await?)?;
    assert_eq!((foreign.owner(), foreign.host.as_str(), foreign.port), (None, "10.0.0.1", 80));
    assert_eq!(common::only(etcd.instances(0, &service("web/api")).await?)?.host, "10.0.0.2");

    let ours = instance("1", "10.0.0.7");
    for change in [Change::Register(web.clone(), ours.clone()), Change::Deregister(web.clone(), ours.clone())]
    {
        let error = write(&etcd, change).await.unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
        assert!(error.reason.contains("/services/web/web-1"), "{error}");
    }
    // The revision that was read is not that of the key any more.
    write(&etcd, Change::Register(web.clone(), instance("2", "10.0.0.8"))).await?;
    let read = etcd.instances(0, &web).await?.into_iter().find(|it| it.id == "web-2").context("no web-2")?;
    put(&server, "/services/web/web-2", r#"{"Op":0,"Addr":"10.0.0.9:80"}"#).await?;
    for change in [Change::Register(web.clone(), read.clone()), Change::Deregister(web.clone(), read)] {
        let error = write(&etcd, change).await.unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    assert_eq!(etcd.instances(0, &web).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn one_bad_change_does_not_stop_the_others() -> Result<()> {
    let (_server, etcd) = started().await?;
    let web = service("web");
    let batch = etcd.capabilities().batch;
    let mut changes: Vec<Change> = (0..batch)
        .map(|number| Change::Register(web.clone(), instance(&number.to_string(), "10.0.0.7")))
        .collect();
    let bad = Instance { id: "a/b".to_owned(), ..instance("bad", "10.0.0.8") };
    changes[3] = Change::Register(web.clone(), bad);
    let stale = Instance { version: Some(InstanceVersion(7)), ..instance("stale", "10.0.0.9") };
    changes[9] = Change::Register(web.clone(), stale);
    let results = etcd.write(&changes).await;
    let kinds: Vec<(usize, RegistryErrorKind)> = results
        .iter()
        .enumerate()
        .filter_map(|(at, result)| Some((at, result.as_ref().err()?.kind)))
        .collect();
    assert_eq!(kinds, [(3, RegistryErrorKind::Rejected), (9, RegistryErrorKind::Conflict)]);
    assert_eq!(etcd.instances(0, &web).await?.len(), batch - 2);
    Ok(())
}

/// etcd refuses a transaction that changes a key twice.
#[tokio::test]
async fn changes_of_one_key_are_made_in_their_order() -> Result<()> {
    let (_server, etcd) = started().await?;
    let web = service("web");
    let at = |host| instance("1", host);
    let changes = [
        Change::Register(web.clone(), at("10.0.0.7")),
        Change::Register(web.clone(), instance("2", "10.0.0.8")),
        Change::Register(web.clone(), at("10.0.0.9")),
        Change::Deregister(web.clone(), instance("2", "10.0.0.8")),
        Change::Deregister(web.clone(), at("10.0.0.9")),
        Change::Register(web.clone(), at("10.0.0.10")),
    ];
    let results = etcd.write(&changes).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(common::only(etcd.instances(0, &web).await?)?.host, "10.0.0.10");
    Ok(())
}

/// Another replica may have changed the instance after the first call.
#[tokio::test]
async fn a_further_call_is_checked_before() -> Result<()> {
    let (_server, etcd) = started().await?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    write(&etcd, Change::Register(web.clone(), wanted.clone())).await?;
    // The first one is registered already, and the third one changes the key of the second one.
    let second = |host| Change::Register(web.clone(), instance("2", host));
    let changes =
        [Change::Register(web.clone(), instance("1", "10.0.0.8")), second("10.0.0.9"), second("10.0.0.10")];
    let results = etcd.write_while(&changes, &common::too_late).await;
    let refused: Vec<bool> = results.iter().map(Result::is_err).collect();
    assert_eq!(refused, [true, false, true], "{results:?}");
    let hosts: Vec<String> = etcd.instances(0, &web).await?.into_iter().map(|found| found.host).collect();
    assert_eq!(hosts, ["10.0.0.7", "10.0.0.9"]);
    Ok(())
}

/// What etcd has made of a change that its response does not mention is not known.
#[tokio::test]
async fn an_incomplete_response_leaves_the_result_open() -> Result<()> {
    let address = http::serve_empty_grpc().await?;
    let etcd = client(&connection(vec![address]))?;
    let error = write(&etcd, Change::Register(service("web"), instance("1", "10.0.0.7"))).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unknown, "{error}");
    assert!(error.reason.contains("incomplete"), "{error}");
    Ok(())
}

#[tokio::test]
async fn more_instances_than_a_page_are_read() -> Result<()> {
    let (_server, etcd) = started().await?;
    let web = service("web");
    let all: Vec<Change> = (0..2_050)
        .map(|number| Change::Register(web.clone(), instance(&number.to_string(), "10.0.0.7")))
        .collect();
    for changes in all.chunks(etcd.capabilities().batch) {
        for result in etcd.write(changes).await {
            result?;
        }
    }
    assert_eq!(etcd.instances(0, &web).await?.len(), all.len());
    assert_eq!(etcd.services(0, "c1").await?, [web]);
    Ok(())
}

#[tokio::test]
async fn every_address_shows_a_change() -> Result<()> {
    let mut servers = EtcdServer::start_three().await?;
    let addresses = servers.iter().map(EtcdServer::address).collect();
    let short = Connection { timeout: Duration::from_secs(2), ..connection(addresses) };
    let etcd = client(&short)?;
    common::until_writable(&etcd).await?;
    let web = service("web");
    // One of three is down: writes go on, and its address shows nothing.
    servers[0].process.stop().await?;
    let change = Change::Register(web.clone(), instance("1", "10.0.0.7"));
    let written = async {
        // Until there is a new leader, the result is unknown; the change may be repeated.
        while write(&etcd, change.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), written).await.context("two of three accept no writes")?;
    let error = etcd.instances(0, &web).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    assert_eq!(error.address, servers[0].address());
    servers[0].process.restart().await?;
    for address in 0..3 {
        let shown = async {
            while !etcd.instances(address, &web).await.is_ok_and(|found| found.len() == 1) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), shown).await.context("an address does not show it")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_the_result_open() -> Result<()> {
    let (mut server, _) = started().await?;
    let short = Connection { timeout: Duration::from_millis(300), ..connection(vec![server.address()]) };
    let etcd = client(&short)?;
    let web = service("web");
    assert_eq!(etcd.instances(0, &web).await?, []);
    server.process.pause()?;
    let change = Change::Register(web.clone(), instance("1", "10.0.0.7"));
    let error = write(&etcd, change).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unknown, "{error}");
    let error = etcd.instances(0, &web).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    server.process.resume()?;
    server.process.restart_empty().await?;
    common::until_writable(&etcd).await?;
    assert_eq!(etcd.instances(0, &web).await?, []);
    Ok(())
}

#[tokio::test]
async fn users_and_certificates_are_checked() -> Result<()> {
    let server = EtcdServer::start(None).await?;
    let open = client(&connection(vec![server.address()]))?;
    common::until_writable(&open).await?;
    for (path, body) in [
        ("auth/user/add", json!({"name": "root", "password": "sesame"})),
        ("auth/user/grant", json!({"user": "root", "role": "root"})),
        ("auth/enable", json!({})),
    ] {
        http::post(&format!("{}/v3/{path}", server.url()), &body).await?;
    }
    let with = |password: &str| {
        let credentials =
            Credentials::Password { user: "root".to_owned(), password: password.to_owned().into() };
        client(&Connection { credentials, ..connection(vec![server.address()]) })
    };
    let web = service("web");
    let etcd = with("sesame")?;
    write(&etcd, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    assert_eq!(etcd.instances(0, &web).await?.len(), 1);
    for denied in [with("wrong-password")?, open] {
        let error = denied.instances(0, &web).await.unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
        assert!(
            !error.to_string().contains("wrong-password")
                && !format!("{denied:?}").contains("wrong-password")
        );
    }

    let certificates = TestCertificates::new()?;
    let server = EtcdServer::start(Some(&certificates)).await?;
    let identity = Some((certificates.certificate.clone(), certificates.key.clone().into()));
    let tls = TlsOptions { authorities: Some(certificates.authority.clone()), identity };
    let with = |tls| client(&Connection { tls: Some(tls), ..connection(vec![server.address()]) });
    let etcd = with(tls.clone())?;
    common::until_writable(&etcd).await?;
    let unknown = TlsOptions { authorities: Some(TestCertificates::new()?.authority), identity: None };
    for refused in [TlsOptions { identity: None, ..tls }, unknown] {
        let error = with(refused)?.instances(0, &web).await.unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    }
    Ok(())
}

/// A client that takes over keeps the instances, and without any they vanish.
#[tokio::test]
async fn instances_with_a_lease_end_without_a_bridge() -> Result<()> {
    let mut server = EtcdServer::start(None).await?;
    let options = EtcdOptions {
        prefix: "/services".to_owned(),
        lease: Some(Duration::from_secs(3)),
        ..EtcdOptions::default()
    };
    let started = || Etcd::new(&connection(vec![server.address()]), &options).map_err(anyhow::Error::msg);
    let (first, second) = (started()?, started()?);
    common::until_writable(&first).await?;
    let web = service("web");
    let (kept, lost) = (instance("kept", "10.0.0.7"), instance("lost", "10.0.0.8"));
    for wanted in [&kept, &lost] {
        write(&first, Change::Register(web.clone(), wanted.clone())).await?;
    }
    let renewal = first.capabilities().renewal.context("no renewal")?;
    assert!(renewal <= Duration::from_secs(1), "{renewal:?}");
    assert_eq!(first.renew(&[(web.clone(), kept.clone())]).await, [Ok(true)]);
    // The first client has ended.
    drop(first);
    let taken = [(web.clone(), kept.clone()), (web.clone(), instance("none", "10.0.0.9"))];
    // One that may not be moved to the other lease is not renewed.
    let refused = second.renew_while(&taken[..1], &common::too_late).await.remove(0);
    assert_eq!(common::refused(refused)?.reason, "too late");
    let vanished = async {
        loop {
            assert_eq!(second.renew(&taken).await, [Ok(true), Ok(false)]);
            let found = second.instances(0, &web).await?;
            assert!(found.iter().any(|it| it.id == kept.id), "{found:?}");
            if found.len() == 1 {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), vanished).await.context("it has not vanished")??;
    // etcd has lost the lease with everything else.
    server.process.restart_empty().await?;
    common::until_writable(&second).await?;
    assert_eq!(second.renew(&taken[..1]).await, [Ok(false)]);
    write(&second, Change::Register(web.clone(), kept)).await?;
    assert_eq!(second.instances(0, &web).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn changes_are_reported() -> Result<()> {
    let (server, etcd) = started().await?;
    etcd.changed(0, &[]).await?;
    let early = tokio::time::timeout(Duration::from_millis(300), etcd.changed(0, &[])).await;
    assert!(early.is_err(), "a change was reported, and there was none: {early:?}");
    let edit = async { put(&server, "/services/web/web-1", "{}").await };
    let changed = async { tokio::time::timeout(Duration::from_secs(120), etcd.changed(0, &[])).await };
    let (changed, edited) = tokio::join!(changed, edit);
    edited?;
    changed.context("no change was reported")??;
    Ok(())
}
