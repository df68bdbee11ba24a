//! Curator's layout, as Spring Cloud and Dubbo 3 use it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podward_registries::{
    Change, Instance, InstanceVersion, Registry, RegistryErrorKind, ZooKeeper, ZooKeeperLayout,
};
use registry_servers::{ZooKeeperServer, ZooKeeperServerOptions};
use serde_json::json;

use crate::common::{self, connection, owner, refused, service, write};

use super::other::{Lifetime, Other};
use super::{client, instance};

const SPRING: &str = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance";
const DUBBO: &str = "org.apache.dubbo.registry.zookeeper.ZookeeperInstance";

/// Each server is a Java process, so one serves several tests, one after the other. Each uses names of its own.
#[tokio::test]
async fn zookeeper_does_what_the_client_says() -> Result<()> {
    let server = ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?;
    let connection = connection(vec![server.address()]);
    let zookeeper = client(&connection, ZooKeeperLayout::Curator)?;
    let mut other = Other::connect(&server.address()).await?;
    an_instance_is_registered_steered_and_removed(&zookeeper, &mut other).await?;
    a_changed_instance_is_not_overwritten(&zookeeper, &mut other).await?;
    each_request_of_a_replacement_is_checked(&zookeeper).await?;
    instances_of_others_are_only_steered(&zookeeper, &mut other).await?;
    one_bad_change_does_not_stop_the_others(&zookeeper).await?;
    changes_are_reported(&zookeeper, &mut other).await?;
    let dubbo = client(&connection, ZooKeeperLayout::DubboApplications)?;
    instances_of_dubbo_are_steered(&dubbo, &mut other).await
}

async fn an_instance_is_registered_steered_and_removed(
    zookeeper: &ZooKeeper,
    other: &mut Other,
) -> Result<()> {
    let (web, wanted) = (service("web"), instance("1", "fd00::7"));
    assert_eq!(zookeeper.services(0, "c1").await?, []);
    assert_eq!(zookeeper.instances(0, &web).await?, []);
    assert_eq!(zookeeper.instance(0, &web, &wanted).await?, None);
    write(zookeeper, Change::Register(web.clone(), wanted.clone())).await?;
    let stored = common::only(zookeeper.instances(0, &web).await?)?;
    // The same again changes nothing.
    write(zookeeper, Change::Register(web.clone(), wanted.clone())).await?;
    assert_eq!(zookeeper.instance(0, &web, &wanted).await?.as_ref(), Some(&stored));
    assert!(stored.version.is_some());
    assert_eq!(Instance { version: None, ..stored.clone() }, wanted);
    assert_eq!(stored.owner(), Some(owner("1")));
    assert_eq!(zookeeper.services(0, "c1").await?, std::slice::from_ref(&web));

    // What Spring Cloud reads.
    let mut metadata = json!(wanted.metadata);
    metadata["instance_status"] = json!("UP");
    let mut value = other.json("/services/web/web-1").await?;
    let registered = value["registrationTimeUTC"].take();
    ensure!(registered.as_u64().is_some_and(|time| time > 1_700_000_000_000), "{registered}");
    let part = |value: &str, variable: bool| json!({"value": value, "variable": variable});
    let mut expected = json!({
        "name": "web", "id": "web-1", "address": "fd00::7", "port": 8080, "sslPort": null,
        "payload": {"@class": SPRING, "id": "web-1", "name": "web", "metadata": metadata},
        "registrationTimeUTC": null, "serviceType": "PERMANENT",
        "uriSpec": {"parts": [
            part("scheme", true), part("://", false), part("address", true), part(":", false), part("port", true),
        ]},
    });
    assert_eq!(value, expected);

    let out = Instance { in_service: false, ..stored.clone() };
    write(zookeeper, Change::SetInService(web.clone(), out.clone())).await?;
    write(zookeeper, Change::SetInService(web.clone(), out.clone())).await?;
    let read = zookeeper.instance(0, &web, &wanted).await?.context("it is gone")?;
    assert_eq!(Instance { version: None, ..read.clone() }, Instance { version: None, ..out });
    expected["payload"]["metadata"]["instance_status"] = json!("OUT_OF_SERVICE");
    expected["enabled"] = json!(false);
    expected["registrationTimeUTC"] = registered.clone();
    assert_eq!(other.json("/services/web/web-1").await?, expected);
    // Both ways back: by the flag, and by another registration.
    write(zookeeper, Change::SetInService(web.clone(), Instance { in_service: true, ..read })).await?;
    assert!(zookeeper.instance(0, &web, &wanted).await?.context("it is gone")?.in_service);
    for in_service in [false, true] {
        let next = Instance { in_service, ..instance("1", "10.0.0.8") };
        write(zookeeper, Change::Register(web.clone(), next.clone())).await?;
        let read = zookeeper.instance(0, &web, &next).await?.context("it is gone")?;
        assert_eq!(Instance { version: None, ..read }, next);
        assert_eq!(other.json("/services/web/web-1").await?["registrationTimeUTC"], registered);
    }

    let stored = common::only(zookeeper.instances(0, &web).await?)?;
    write(zookeeper, Change::Deregister(web.clone(), stored.clone())).await?;
    write(zookeeper, Change::Deregister(web.clone(), stored.clone())).await?;
    assert_eq!(zookeeper.instances(0, &web).await?, []);
    for change in [Change::SetInService(web.clone(), stored.clone()), Change::Register(web, stored)] {
        let error = refused(write(zookeeper, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    Ok(())
}

async fn a_changed_instance_is_not_overwritten(zookeeper: &ZooKeeper, other: &mut Other) -> Result<()> {
    let (cart, path) = (service("cart"), "/services/cart/web-1");
    write(zookeeper, Change::Register(cart.clone(), instance("1", "10.0.0.7"))).await?;
    let read = common::only(zookeeper.instances(0, &cart).await?)?;
    let data = other.get(path).await?;
    other.set(path, &data).await?;
    let moved = Instance { port: 9090, ..read.clone() };
    let out = Instance { in_service: false, ..read.clone() };
    let changes = [
        Change::Register(cart.clone(), moved.clone()),
        Change::SetInService(cart.clone(), out.clone()),
        Change::Deregister(cart.clone(), read.clone()),
    ];
    for change in &changes {
        let error = refused(write(zookeeper, change.clone()).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    assert_eq!(other.get(path).await?, data);
    // A node that was removed and created again has the first version of its data again.
    let read = common::only(zookeeper.instances(0, &cart).await?)?;
    other.delete(path).await?;
    other.create_one(path, &data, Lifetime::Persistent).await?;
    for change in changes {
        let (service, instance) = change.target();
        let again = Instance { version: read.version, ..instance.clone() };
        let change = match change {
            Change::Register(..) => Change::Register(service.clone(), again),
            Change::SetInService(..) => Change::SetInService(service.clone(), again),
            Change::Deregister(..) => Change::Deregister(service.clone(), again),
        };
        let error = refused(write(zookeeper, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    assert_eq!(other.get(path).await?, data);
    // With the present version it works.
    let read = common::only(zookeeper.instances(0, &cart).await?)?;
    let moved = Instance { version: read.version, ..moved };
    write(zookeeper, Change::Register(cart.clone(), moved)).await?;
    let read = common::only(zookeeper.instances(0, &cart).await?)?;
    assert_eq!(read.port, 9090);
    write(zookeeper, Change::Deregister(cart.clone(), read)).await?;
    assert_eq!(zookeeper.instances(0, &cart).await?, []);
    Ok(())
}

/// A registration finds the instance only when it cannot create it.
async fn each_request_of_a_replacement_is_checked(zookeeper: &ZooKeeper) -> Result<()> {
    let checked = service("checked");
    write(zookeeper, Change::Register(checked.clone(), instance("1", "10.0.0.7"))).await?;
    let replace = [Change::Register(checked.clone(), instance("1", "10.0.0.8"))];
    let mut allowed = 0;
    while zookeeper.write_while(&replace, &common::only_first(allowed)).await != [Ok(())] {
        assert_eq!(common::only(zookeeper.instances(0, &checked).await?)?.host, "10.0.0.7");
        allowed += 1;
        ensure!(allowed < 10, "it is refused again and again");
    }
    assert_eq!(allowed, 3, "before the address, the creation and the change");
    let replaced = common::only(zookeeper.instances(0, &checked).await?)?;
    assert_eq!(replaced.host, "10.0.0.8");
    Ok(write(zookeeper, Change::Deregister(checked, replaced)).await?)
}

async fn instances_of_others_are_only_steered(zookeeper: &ZooKeeper, other: &mut Other) -> Result<()> {
    let (api, path) = (service("api"), "/services/api/web-2");
    let before = json!({
        "name": "api", "id": "web-2", "address": "10.0.0.9", "port": 80, "sslPort": null, "further": [1, null],
        "payload": {"@class": SPRING, "id": "application-1", "name": "api", "metadata": {"instance_status": "UP"}},
        "registrationTimeUTC": 5, "serviceType": "DYNAMIC", "uriSpec": null,
    });
    other.create(path, &before.to_string(), Lifetime::Ephemeral).await?;
    let stored = common::only(zookeeper.instances(0, &api).await?)?;
    assert_eq!((stored.owner(), stored.host.as_str(), stored.port), (None, "10.0.0.9", 80));
    other.create_one("/services/api/broken", "10.0.0.9", Lifetime::Persistent).await?;
    let error = refused(zookeeper.instances(0, &api).await)?;
    assert!(error.reason.contains("/services/api/broken"), "{error}");
    let ours = instance("2", "10.0.0.8");
    let broken = Instance { id: "broken".to_owned(), ..ours.clone() };
    for change in [
        Change::Register(api.clone(), ours.clone()),
        Change::Deregister(api.clone(), ours),
        Change::Deregister(api.clone(), stored.clone()),
        Change::Register(api.clone(), broken.clone()),
        Change::Deregister(api.clone(), broken.clone()),
        Change::SetInService(api.clone(), broken),
    ] {
        let error = refused(write(zookeeper, change.clone()).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{change}: {error}");
        assert!(error.reason.contains("/services/api/"), "{error}");
    }
    assert_eq!(other.json(path).await?, before);
    let out = Instance { in_service: false, ..stored.clone() };
    write(zookeeper, Change::SetInService(api.clone(), out)).await?;
    let mut expected = before.clone();
    expected["payload"]["metadata"]["instance_status"] = json!("OUT_OF_SERVICE");
    expected["enabled"] = json!(false);
    assert_eq!(other.json(path).await?, expected);
    let read = zookeeper.instance(0, &api, &stored).await?.context("it is gone")?;
    assert!(!read.in_service);
    write(zookeeper, Change::SetInService(api.clone(), Instance { in_service: true, ..read })).await?;
    assert_eq!(other.json(path).await?, before);
    Ok(())
}

async fn one_bad_change_does_not_stop_the_others(zookeeper: &ZooKeeper) -> Result<()> {
    let many = service("many");
    let batch = zookeeper.capabilities().batch;
    let mut changes: Vec<Change> = (0..batch)
        .map(|number| Change::Register(many.clone(), instance(&number.to_string(), "10.0.0.7")))
        .collect();
    let bad = Instance { id: "a/b".to_owned(), ..instance("bad", "10.0.0.8") };
    changes[3] = Change::Register(many.clone(), bad);
    changes[5] = Change::SetInService(many.clone(), instance("missing", "10.0.0.8"));
    let stale = Instance { version: Some(InstanceVersion(7)), ..instance("stale", "10.0.0.9") };
    changes[9] = Change::Register(many.clone(), stale);
    let mut reserved = instance("reserved", "10.0.0.9");
    reserved.metadata.insert("instance_status".to_owned(), "UP".to_owned());
    changes[11] = Change::Register(many.clone(), reserved);
    let results = zookeeper.write(&changes).await;
    let kinds: Vec<(usize, RegistryErrorKind)> = results
        .iter()
        .enumerate()
        .filter_map(|(at, result)| Some((at, result.as_ref().err()?.kind)))
        .collect();
    let (rejected, conflict) = (RegistryErrorKind::Rejected, RegistryErrorKind::Conflict);
    assert_eq!(kinds, [(3, rejected), (5, conflict), (9, conflict), (11, rejected)]);
    assert_eq!(zookeeper.instances(0, &many).await?.len(), batch - 4);
    Ok(())
}

async fn changes_are_reported(zookeeper: &ZooKeeper, other: &mut Other) -> Result<()> {
    let changed = async || {
        let changed = tokio::time::timeout(Duration::from_secs(120), zookeeper.changed(0, &[]));
        anyhow::Ok(changed.await.context("no change was reported")??)
    };
    changed().await?;
    // Made while nobody waits.
    other.create("/services/watched/a", "{}", Lifetime::Persistent).await?;
    changed().await?;
    let edit = other.set("/services/watched/a", "[]");
    tokio::try_join!(edit, changed())?;
    Ok(())
}

async fn instances_of_dubbo_are_steered(dubbo: &ZooKeeper, other: &mut Other) -> Result<()> {
    assert!(!dubbo.capabilities().own && dubbo.capabilities().steer);
    let (demo, path) = (service("demo-provider"), "/services/demo-provider/10.0.0.7:20880");
    let before = json!({
        "name": "demo-provider", "id": "10.0.0.7:20880", "address": "10.0.0.7", "port": 20880, "sslPort": null,
        "payload": {"@class": DUBBO, "id": "10.0.0.7:20880", "name": "demo-provider",
            "metadata": {"dubbo.metadata.revision": "abc", "dubbo.metadata.storage-type": "local"}},
        "registrationTimeUTC": 5, "serviceType": "DYNAMIC", "uriSpec": null,
    });
    other.create(path, &before.to_string(), Lifetime::Ephemeral).await?;
    let stored = common::only(dubbo.instances(0, &demo).await?)?;
    assert!(stored.in_service);
    assert_eq!(stored.metadata.len(), 2);
    for in_service in [false, true] {
        let wanted = Instance { in_service, version: None, ..stored.clone() };
        write(dubbo, Change::SetInService(demo.clone(), wanted.clone())).await?;
        let read = dubbo.instance(0, &demo, &stored).await?.context("it is gone")?;
        assert_eq!(Instance { version: None, ..read }, wanted);
        let mut expected = before.clone();
        if !in_service {
            expected["payload"]["metadata"]["dubbo.metadata.revision"] = json!("0");
            expected["payload"]["metadata"]["podward-revision"] = json!("abc");
        }
        assert_eq!(other.json(path).await?, expected);
    }
    for change in
        [Change::Register(demo.clone(), instance("1", "10.0.0.8")), Change::Deregister(demo, stored)]
    {
        let error = refused(write(dubbo, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Rejected, "{error}");
    }
    Ok(())
}
