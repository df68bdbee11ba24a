//! The client of Nacos: version 1 of its interface against rnacos, versions 2 and 3 against a stub that was written from
//! the published interface, because Nacos itself is not published where tests can fetch it.

mod stub;

use anyhow::{Context, Result, ensure};
use podward_registries::{
    Change, Connection, Credentials, Instance, Nacos, Owner, Registry, RegistryErrorKind, ServiceKey,
};
use registry_servers::{NacosServer, NacosServerOptions};

use crate::common::{self, connection, instance, owner, service, write};
use crate::http;

use self::stub::NacosStub;

fn client(connection: &Connection) -> Result<Nacos> {
    Nacos::new(connection).map_err(anyhow::Error::msg)
}

#[tokio::test]
async fn version_1_against_rnacos() -> Result<()> {
    let mut server = NacosServer::start(NacosServerOptions::default()).await?;
    let nacos = client(&connection(vec![server.url()]))?;
    what_a_registry_does(&nacos, false).await?;
    let foreign = format!(
        "{}/v1/ns/instance?serviceName=api&ip=10.0.0.9&port=80&ephemeral=false&weight=3&metadata=%7B%22a%22%3A%22b%22%7D",
        server.url()
    );
    http::post(&foreign, &serde_json::Value::Null).await?;
    instances_of_others_are_only_steered(&nacos).await?;
    an_address_is_inherited(&nacos).await?;
    an_address_is_taken_over(&nacos).await?;

    write(&nacos, Change::Register(service("web"), instance("1", "10.0.0.7"))).await?;
    server.process.restart_empty().await?;
    assert_eq!(nacos.instances(0, &service("web")).await?, []);
    write(&nacos, Change::Register(service("web"), instance("1", "10.0.0.7"))).await?;
    server.process.stop().await?;
    let error = common::refused(nacos.instances(0, &service("web")).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    Ok(())
}

#[tokio::test]
async fn version_1_with_a_login() -> Result<()> {
    let options = NacosServerOptions { password: Some("sesame-123".to_owned()) };
    let server = NacosServer::start(options).await?;
    a_login_is_needed(&server.url(), "sesame-123").await
}

#[tokio::test]
async fn version_2_against_a_stub() -> Result<()> {
    versions_against_a_stub(2).await
}

#[tokio::test]
async fn version_3_against_a_stub() -> Result<()> {
    versions_against_a_stub(3).await
}

async fn versions_against_a_stub(version: u8) -> Result<()> {
    let stub = NacosStub::new(version, None);
    let url = stub.start().await?;
    // The path of the address is optional.
    let nacos = client(&connection(vec![url.clone()]))?;
    what_a_registry_does(&nacos, true).await?;
    assert_eq!(stub.checkers(), ["DEFAULT_GROUP@@web", "g@@web"].map(|name| format!("{name} NONE")));
    stub.put_ephemeral("api", "10.0.0.9", 80);
    instances_of_others_are_only_steered(&nacos).await?;

    an_instance_that_is_not_healthy_may_return(&nacos, &stub).await?;
    another_client_finds_an_instance_that_is_out_of_service(&nacos, &client(&connection(vec![url]))?).await?;

    // A failure is not an empty list, and its result is unknown if it was a change.
    let web = service("web");
    write(&nacos, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    stub.fail_next(1);
    let error = common::refused(nacos.instances(0, &web).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    stub.fail_changes(1);
    let error =
        common::refused(write(&nacos, Change::Deregister(web.clone(), instance("1", "10.0.0.7"))).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unknown, "{error}");

    // The server is replaced by one of another version.
    let other = if version == 2 { 3 } else { 2 };
    stub.become_version(other);
    let error = common::refused(nacos.instances(0, &web).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    common::only(nacos.instances(0, &web).await?)?;

    let stub = NacosStub::new(version, Some("sesame"));
    a_login_is_needed(&format!("{}/nacos/", stub.start().await?), "sesame").await?;
    ensure!(stub.logins() == 2, "{} logins: a right one, and a wrong one", stub.logins());
    Ok(())
}

/// One client does everything of an instance's life, in the default group and in another.
/// `lists_all`: its list of what is stored has those out of service.
async fn what_a_registry_does(nacos: &Nacos, lists_all: bool) -> Result<()> {
    let group = ServiceKey { group: "g".to_owned(), ..service("web") };
    for web in [service("web"), group] {
        let wanted = Instance { id: "10.0.0.7:8080".to_owned(), ..instance("1", "10.0.0.7") };
        let read = async || nacos.instance(0, &web, &wanted).await;
        assert_eq!(read().await?, None);
        write(nacos, Change::Deregister(web.clone(), wanted.clone())).await?;
        write(nacos, Change::Register(web.clone(), wanted.clone())).await?;
        // The same again.
        write(nacos, Change::Register(web.clone(), wanted.clone())).await?;
        assert_eq!(read().await?.as_ref(), Some(&wanted));
        assert_eq!(read().await?.and_then(|it| it.owner()), Some(owner("1")));

        let out = Instance { in_service: false, ..wanted.clone() };
        write(nacos, Change::SetInService(web.clone(), out.clone())).await?;
        assert_eq!(read().await?, Some(out.clone()));
        assert_eq!(nacos.instances(0, &web).await?.contains(&out), lists_all);
        write(nacos, Change::SetInService(web.clone(), wanted.clone())).await?;
        assert_eq!(read().await?.as_ref(), Some(&wanted));

        // Another pod has the address, and one of another cluster.
        let mut of_other_cluster = instance("1", "10.0.0.7");
        Owner { cluster: "c2".to_owned(), ..owner("1") }.mark(&mut of_other_cluster.metadata);
        for change in [
            Change::Register(web.clone(), of_other_cluster),
            Change::Deregister(web.clone(), instance("2", "10.0.0.7")),
        ] {
            let error = common::refused(write(nacos, change).await)?;
            assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
        }

        let mut changed = Instance { weight: 5.0, ..wanted.clone() };
        changed.metadata.insert("version".to_owned(), "a=b&c \"ü\"".to_owned());
        let other = Instance { cluster: "east".to_owned(), ..instance("3", "10.0.0.8") };
        let both = [
            Change::Register(web.clone(), changed.clone()),
            Change::Register(web.clone(), other.clone()),
            Change::SetInService(web.clone(), instance("4", "10.0.0.99")),
        ];
        let results = nacos.write(&both).await;
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{results:?}");
        assert_eq!(read().await?.as_ref(), Some(&changed));
        let of_east = nacos.instance(0, &web, &other).await?.context("the instance of another cluster")?;
        assert_eq!((of_east.cluster.as_str(), of_east.owner()), ("east", Some(owner("3"))));
        // Clients do not see its cluster while it is out of service.
        let out = Instance { in_service: false, ..of_east };
        write(nacos, Change::SetInService(web.clone(), out.clone())).await?;
        assert_eq!(nacos.instance(0, &web, &other).await?, Some(out));

        for instance in [changed, other] {
            write(nacos, Change::Deregister(web.clone(), instance.clone())).await?;
            assert_eq!(nacos.instance(0, &web, &instance).await?, None);
        }
    }
    Ok(())
}

/// There is an instance 10.0.0.9:80 without a mark.
async fn instances_of_others_are_only_steered(nacos: &Nacos) -> Result<()> {
    let api = service("api");
    let stored = common::only(nacos.instances(0, &api).await?)?;
    assert_eq!((stored.owner(), stored.weight, stored.metadata.len()), (None, 3.0, 1));
    let ours = Instance { host: stored.host.clone(), port: stored.port, ..instance("1", "") };
    for change in [Change::Register(api.clone(), ours.clone()), Change::Deregister(api.clone(), ours)] {
        let error = common::refused(write(nacos, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    let out = Instance { in_service: false, ..stored.clone() };
    write(nacos, Change::SetInService(api.clone(), out.clone())).await?;
    assert_eq!(nacos.instance(0, &api, &stored).await?, Some(out));
    write(nacos, Change::SetInService(api.clone(), stored.clone())).await?;
    assert_eq!(nacos.instance(0, &api, &stored).await?, Some(stored));
    Ok(())
}

/// An application that is not healthy is out of service for a while only. Podward disables it.
async fn an_instance_that_is_not_healthy_may_return(nacos: &Nacos, stub: &NacosStub) -> Result<()> {
    let api = service("sick");
    stub.put_ephemeral("sick", "10.0.0.6", 80);
    stub.set_healthy("10.0.0.6", false);
    let sick = common::only(nacos.instances(0, &api).await?)?;
    assert_eq!((sick.in_service, sick.may_return, sick.is_held_out()), (false, true, false));
    let out = Instance { may_return: false, ..sick };
    write(nacos, Change::SetInService(api.clone(), out.clone())).await?;
    stub.set_healthy("10.0.0.6", true);
    assert_eq!(nacos.instance(0, &api, &out).await?, Some(out));
    Ok(())
}

#[tokio::test]
async fn an_instance_that_clients_see_is_in_service_whatever_is_stored() -> Result<()> {
    for version in [2, 3] {
        let stub = NacosStub::new(version, None);
        let nacos = client(&connection(vec![stub.start().await?]))?;
        let api = service("api");
        stub.put_ephemeral("api", "10.0.0.8", 80);
        stub.put_ephemeral("api", "10.0.0.9", 80);
        stub.show_only("10.0.0.9");
        let found = nacos.instances(0, &api).await?;
        let shown: Vec<_> = found.iter().map(|found| (found.host.as_str(), found.in_service)).collect();
        assert_eq!(shown, [("10.0.0.8", true), ("10.0.0.9", true)], "{version}");
        let wanted = Instance { port: 80, ..instance("1", "10.0.0.9") };
        let found = nacos.instance(0, &api, &wanted).await?.context("it counts as absent")?;
        assert!(found.in_service, "{version}");

        stub.hide_stored();
        let error = common::refused(nacos.instances(0, &api).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{version}: {error}");
        assert!(error.reason.contains("a proxy has to pass"), "{version}: {error}");
        assert_eq!(nacos.instances(0, &service("other")).await?, [], "{version}");
    }
    Ok(())
}

/// Version 3 lists the instances of one cluster, and clients do not see a cluster whose instances are all disabled.
async fn another_client_finds_an_instance_that_is_out_of_service(nacos: &Nacos, other: &Nacos) -> Result<()> {
    let service = service("east");
    let wanted = Instance { cluster: "east".to_owned(), ..instance("5", "10.0.0.5") };
    write(nacos, Change::Register(service.clone(), wanted.clone())).await?;
    let read = nacos.instance(0, &service, &wanted).await?.context("it is not registered")?;
    let out = Instance { in_service: false, ..read.clone() };
    write(nacos, Change::SetInService(service.clone(), out.clone())).await?;
    assert_eq!(other.instance(0, &service, &wanted).await?, Some(out));
    write(other, Change::SetInService(service.clone(), read.clone())).await?;
    assert_eq!(other.instance(0, &service, &wanted).await?, Some(read));
    Ok(())
}

/// A pod inherits the address of one that has ended. What the former pod leaves behind does not take the place back.
async fn an_address_is_inherited(nacos: &Nacos) -> Result<()> {
    let inherited = service("inherited");
    let (first, second) = (instance("first", "10.0.0.77"), instance("second", "10.0.0.77"));
    write(nacos, Change::Register(inherited.clone(), first.clone())).await?;
    write(nacos, Change::Register(inherited.clone(), second.clone())).await?;
    let error = common::refused(write(nacos, Change::Deregister(inherited.clone(), first)).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    let found = nacos.instance(0, &inherited, &second).await?.context("it is gone")?;
    assert_eq!(found.owner(), second.owner());
    write(nacos, Change::Deregister(inherited, second)).await?;
    Ok(())
}

/// A cluster registers at an address that another one has just left. Nacos keeps the metadata of the former for a while.
async fn an_address_is_taken_over(nacos: &Nacos) -> Result<()> {
    let service = service("taken");
    let first = instance("first", "10.0.0.78");
    for _ in 0..2 {
        write(nacos, Change::Register(service.clone(), first.clone())).await?;
    }
    write(nacos, Change::Deregister(service.clone(), first)).await?;
    let mut second = instance("second", "10.0.0.78");
    Owner { cluster: "c2".to_owned(), ..owner("second") }.mark(&mut second.metadata);
    write(nacos, Change::Register(service.clone(), second.clone())).await?;
    let found = nacos.instance(0, &service, &second).await?.context("it is gone")?;
    assert_eq!(found.owner(), second.owner());
    write(nacos, Change::Deregister(service, second)).await?;
    Ok(())
}

async fn a_login_is_needed(url: &str, password: &str) -> Result<()> {
    let as_user = |password: &str| Connection {
        credentials: Credentials::Password { user: "nacos".to_owned(), password: password.into() },
        ..connection(vec![url.to_owned()])
    };
    let right = client(&as_user(password))?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    write(&right, Change::Register(web.clone(), wanted)).await?;
    common::only(right.instances(0, &web).await?)?;
    for connection in [as_user("wrong"), connection(vec![url.to_owned()])] {
        let error = common::refused(client(&connection)?.instances(0, &web).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
        ensure!(!error.to_string().contains("wrong"), "{error}");
    }
    Ok(())
}
