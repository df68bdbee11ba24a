//! Instances of etcd in several formats, and keys that are not readable.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use podward_registries::{Change, Etcd, EtcdOptions, EtcdTemplate, Instance, Registry, RegistryErrorKind};
use registry_servers::EtcdServer;
use serde_json::{Value, json};

use super::{base64, instance, put, started};
use crate::common::{self, connection, owner, service, write};
use crate::http;

/// Two bindings with formats of their own share a server.
#[tokio::test]
async fn what_another_client_has_written_in_its_format_is_known_to_be_its_own() -> Result<()> {
    let server = EtcdServer::start(None).await?;
    let with = |key: &str, value: &str| {
        let template = EtcdTemplate { key: key.to_owned(), value: value.to_owned() };
        let options = EtcdOptions { template: Some(template), ..EtcdOptions::default() };
        Etcd::new(&connection(vec![server.address()]), &options).map_err(anyhow::Error::msg)
    };
    let plain = Etcd::new(&connection(vec![server.address()]), &EtcdOptions::default());
    let plain = plain.map_err(anyhow::Error::msg)?;
    let key = "rpc/${service}/nodes/${id}";
    let one = with(key, r#"{"host": "${host}", "port": "${port}", "tags": "${metadata}"}"#)?;
    let other = with(key, r#"["${host}:${port}", "${metadata}"]"#)?;
    common::until_writable(&one).await?;
    let uid = "0f1c7a52-6d0e-4d5c-9a53-1f6a1f0c9c11";
    let ours = Instance { id: owner(uid).instance_id(8080), ..instance(uid, "10.0.0.7") };
    write(&other, Change::Register(service("web"), ours.clone())).await?;
    write(&one, Change::Register(service("web"), instance("2", "10.0.0.8"))).await?;
    for (etcd, name, instances) in [(&one, "web", 1), (&plain, "rpc/web/nodes", 0)] {
        assert!(etcd.services(0, "c1").await?.contains(&service(name)), "{name}");
        let listed = etcd.listed(0, &service(name)).await?;
        assert_eq!(listed.instances.len(), instances, "{name}: {listed:?}");
        let found = listed.unreadable.iter().map(|entry| (&entry.id, &entry.owner, entry.is_marked));
        assert_eq!(found.collect::<Vec<_>>(), [(&ours.id, &Some(owner(uid)), true)], "{name}");
        let error = common::refused(etcd.instances(0, &service(name)).await)?;
        assert!(error.reason.contains(&ours.id), "{error}");
    }
    Ok(())
}

/// What a resolver of another format reads.
#[tokio::test]
async fn instances_are_stored_by_templates() -> Result<()> {
    let server = EtcdServer::start(None).await?;
    let with = |key: &str, value: &str| {
        let template = EtcdTemplate { key: key.to_owned(), value: value.to_owned() };
        let options = EtcdOptions { template: Some(template), ..EtcdOptions::default() };
        Etcd::new(&connection(vec![server.address()]), &options).map_err(anyhow::Error::msg)
    };
    let value =
        r#"{"endpoint": "http://${host}:${port}", "weight": "${weight}", "tags": "${metadata}", "v": 2}"#;
    let (by_id, by_address) =
        (with("/rpc/${service}/nodes/${id}", value)?, with("/at/${service}/${host}:${port}", value)?);
    common::until_writable(&by_id).await?;
    let web = service("web");
    for (etcd, key) in [(&by_id, "/rpc/web/nodes/web-1"), (&by_address, "/at/web/fd00::7:8080")] {
        let wanted = common::instance("1", "fd00::7");
        for _ in 0..2 {
            write(etcd, Change::Register(web.clone(), wanted.clone())).await?;
        }
        let body = json!({"key": base64(key)});
        let read: Value =
            serde_json::from_str(&http::post(&format!("{}/v3/kv/range", server.url()), &body).await?)?;
        let stored = STANDARD.decode(read["kvs"][0]["value"].as_str().context("no value")?)?;
        let expected =
            json!({"endpoint": "http://fd00::7:8080", "weight": 2, "tags": wanted.metadata, "v": 2});
        assert_eq!(serde_json::from_slice::<Value>(&stored)?, expected);
        let found = common::only(etcd.instances(0, &web).await?)?;
        assert_eq!((&found.host, found.port, found.weight), (&wanted.host, 8080, 2.0));
        assert_eq!((found.owner(), &found.metadata), (Some(owner("1")), &wanted.metadata));
        assert_eq!(etcd.services(0, "c1").await?, std::slice::from_ref(&web));
        // Somebody else edits it, and takes the key over.
        for foreign in [r#"{"endpoint": "http://10.0.0.1:80", "weight": 1, "tags": {}}"#, "anything"] {
            put(&server, key, foreign).await?;
            for change in [
                Change::Register(web.clone(), wanted.clone()),
                Change::Deregister(web.clone(), found.clone()),
            ] {
                let error = write(etcd, change).await.unwrap_err();
                assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
                assert!(error.reason.contains(key), "{error}");
            }
        }
        // A key with the address of a pod is its instance, whatever its value says.
        match etcd.capabilities().by_address {
            false => assert_eq!(etcd.instances(0, &web).await?, []),
            true => {
                let listed = etcd.listed(0, &web).await?;
                assert_eq!(listed.unreadable.iter().map(|it| it.is_marked).collect::<Vec<_>>(), [false]);
                let error = common::refused(listed.complete())?;
                assert!(error.reason.contains(key), "{error}");
            }
        }
    }
    // Not the instance of a service.
    let slashes = Change::Register(service("web/nodes/x"), common::instance("1", "10.0.0.7"));
    let error = write(&by_id, slashes).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Rejected, "{error}");
    Ok(())
}

/// Only the pod of the key waits.
#[tokio::test]
async fn a_key_that_cannot_be_read_hides_no_other_instance() -> Result<()> {
    let (server, etcd) = started().await?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    write(&etcd, Change::Register(web.clone(), wanted.clone())).await?;
    let id = "shop.web-0.0f1c7a52-6d0e-4d5c-9a53-1f6a1f0c9c11.8080";
    put(&server, &format!("/services/web/{id}"), "{}").await?;
    let spoiled = Instance { id: id.to_owned(), ..instance("2", "10.0.0.8") };
    for read in [etcd.instances(0, &web).await.map(drop), etcd.instance(0, &web, &spoiled).await.map(drop)] {
        let error = common::refused(read)?;
        assert!(error.kind == RegistryErrorKind::Invalid && error.reason.contains(id), "{error}");
    }
    let found = etcd.instance(0, &web, &wanted).await?.context("it is not found")?;
    assert_eq!(Instance { version: None, ..found }, wanted);
    assert_eq!(etcd.instance(0, &web, &instance("3", "10.0.0.9")).await?, None);
    Ok(())
}
