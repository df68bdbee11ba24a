//! The layout of Dubbo 2.

use anyhow::{Context, Result, ensure};
use podward_registries::{Change, Instance, Registry, RegistryErrorKind, ZooKeeper, ZooKeeperLayout};
use registry_servers::{ZooKeeperServer, ZooKeeperServerOptions};

use crate::common::{self, connection, owner, refused, service, write};

use super::client;
use super::other::{Lifetime, Other};

const DEMO: &str = "org.apache.dubbo.demo.DemoService";

fn folder(interface: &str, category: &str) -> String {
    format!("/dubbo/{interface}/{category}")
}

/// As Java's `URLEncoder` writes the characters of these tests.
fn encoded(url: &str) -> String {
    let mut text = url.to_owned();
    for (plain, encoded) in
        [("%", "%25"), (":", "%3A"), ("/", "%2F"), ("?", "%3F"), ("=", "%3D"), ("&", "%26"), (",", "%2C")]
    {
        text = text.replace(plain, encoded);
    }
    text
}

/// An instance with the parameters of a provider.
fn instance(uid: &str, host: &str) -> Instance {
    let mut instance = common::instance(uid, host);
    instance.id = format!("{host}:8080");
    let parameters =
        [("application", "demo"), ("group", "g"), ("methods", "sayHello,sayGoodbye"), ("version", "1.0.0")];
    instance.metadata.extend(parameters.map(|(key, value)| (key.to_owned(), value.to_owned())));
    instance
}

#[tokio::test]
async fn zookeeper_does_what_the_client_says_about_dubbo() -> Result<()> {
    let server = ZooKeeperServer::start(ZooKeeperServerOptions::default()).await?;
    let layout = ZooKeeperLayout::DubboInterfaces { protocol: "dubbo".to_owned() };
    let dubbo = client(&connection(vec![server.address()]), layout)?;
    let mut other = Other::connect(&server.address()).await?;
    a_provider_is_registered_steered_and_removed(&dubbo, &mut other).await?;
    a_provider_that_was_replaced_is_not_overwritten(&dubbo, &mut other).await?;
    providers_of_applications_are_steered_by_overrides(&dubbo, &mut other).await?;
    what_cannot_be_a_url_is_rejected(&dubbo).await
}

async fn a_provider_is_registered_steered_and_removed(dubbo: &ZooKeeper, other: &mut Other) -> Result<()> {
    let (demo, wanted) = (service(DEMO), instance("1", "10.0.0.7"));
    assert_eq!(dubbo.instance(0, &demo, &wanted).await?, None);
    write(dubbo, Change::Register(demo.clone(), wanted.clone())).await?;
    let stored = common::only(dubbo.instances(0, &demo).await?)?;
    write(dubbo, Change::Register(demo.clone(), wanted.clone())).await?;
    assert_eq!(dubbo.instance(0, &demo, &wanted).await?.as_ref(), Some(&stored));
    assert!(stored.version.is_some());
    assert_eq!(Instance { version: None, ..stored.clone() }, wanted);
    assert_eq!(stored.owner(), Some(owner("1")));
    // Dubbo keeps other nodes beside those of the interfaces.
    other.create_one("/dubbo/metadata", "", Lifetime::Persistent).await?;
    assert_eq!(dubbo.services(0, "c1").await?, std::slice::from_ref(&demo));

    // The weight of the test is twice the default.
    let url = |rest: &str| {
        encoded(&format!(
            "dubbo://10.0.0.7:8080/{DEMO}?application=demo&{rest}&group=g&methods=sayHello,sayGoodbye&\
             podward-binding=web&podward-cluster=c1&podward-namespace=shop&podward-pod=pod-1&podward-uid=1&\
             version=1.0.0&weight=200"
        ))
    };
    let providers = folder(DEMO, "providers");
    assert_eq!(other.children(&providers).await?, [url("dynamic=false")]);
    let out = Instance { in_service: false, ..stored };
    // Consumers would keep the last one.
    let error = refused(write(dubbo, Change::SetInService(demo.clone(), out.clone())).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    assert_eq!(other.children(&providers).await?, [url("dynamic=false")]);
    let second = instance("2", "10.0.0.8");
    write(dubbo, Change::Register(demo.clone(), second.clone())).await?;
    write(dubbo, Change::SetInService(demo.clone(), out.clone())).await?;
    assert!(dubbo.instance(0, &demo, &second).await?.context("it is gone")?.in_service);
    write(dubbo, Change::Deregister(demo.clone(), second)).await?;
    assert_eq!(other.children(&providers).await?, [url("disabled=true&dynamic=false")]);
    write(dubbo, Change::SetInService(demo.clone(), out.clone())).await?;
    let read = dubbo.instance(0, &demo, &wanted).await?.context("it is gone")?;
    assert_eq!(Instance { version: None, ..read.clone() }, Instance { version: None, ..out });
    write(dubbo, Change::SetInService(demo.clone(), Instance { in_service: true, ..read })).await?;
    assert_eq!(other.children(&providers).await?, [url("dynamic=false")]);

    // Other metadata are another node, and the old one goes with the same transaction.
    let mut next = wanted.clone();
    next.metadata.insert("version".to_owned(), "2.0.0".to_owned());
    write(dubbo, Change::Register(demo.clone(), next.clone())).await?;
    let stored = common::only(dubbo.instances(0, &demo).await?)?;
    assert_eq!(Instance { version: None, ..stored.clone() }, next);
    assert_eq!(other.children(&providers).await?.len(), 1);
    let error = refused(write(dubbo, Change::Register(demo.clone(), instance("2", "10.0.0.7"))).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    write(dubbo, Change::Deregister(demo.clone(), stored.clone())).await?;
    write(dubbo, Change::Deregister(demo.clone(), stored.clone())).await?;
    assert_eq!(dubbo.instances(0, &demo).await?, []);
    for change in [Change::SetInService(demo.clone(), stored.clone()), Change::Register(demo, stored)] {
        let error = refused(write(dubbo, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    Ok(())
}

async fn a_provider_that_was_replaced_is_not_overwritten(dubbo: &ZooKeeper, other: &mut Other) -> Result<()> {
    let (cart, providers) = (service("a.Cart"), folder("a.Cart", "providers"));
    write(dubbo, Change::Register(cart.clone(), instance("1", "10.0.0.7"))).await?;
    let read = common::only(dubbo.instances(0, &cart).await?)?;
    let names = other.children(&providers).await?;
    let path = format!("{providers}/{}", names[0]);
    other.delete(&path).await?;
    other.create_one(&path, "", Lifetime::Persistent).await?;
    let moved = Instance { weight: 0.5, ..read.clone() };
    let out = Instance { in_service: false, ..read.clone() };
    for change in [
        Change::Register(cart.clone(), moved),
        Change::SetInService(cart.clone(), out),
        Change::Deregister(cart.clone(), read),
    ] {
        let error = refused(write(dubbo, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    assert_eq!(other.children(&providers).await?, names);
    Ok(())
}

async fn providers_of_applications_are_steered_by_overrides(
    dubbo: &ZooKeeper,
    other: &mut Other,
) -> Result<()> {
    let interface = "a.Api";
    let (api, configurators) = (service(interface), folder(interface, "configurators"));
    let url = |rest: &str| encoded(&format!("dubbo://10.0.0.9:20880/{interface}?{rest}"));
    let plain = url("anyhost=true&dynamic=true&release=3.2.16");
    let versioned = url("dynamic=true&group=g&release=3.2.16&version=1.0.0");
    for name in [&plain, &versioned] {
        other.create(&format!("{}/{name}", folder(interface, "providers")), "", Lifetime::Ephemeral).await?;
    }
    let broken = format!("{}/broken", folder(interface, "providers"));
    other.create_one(&broken, "", Lifetime::Persistent).await?;
    let stored = common::only(dubbo.instances(0, &api).await?)?;
    assert_eq!((stored.owner(), stored.host.as_str(), stored.port), (None, "10.0.0.9", 20880));
    // Others, which stay in service.
    for parameters in ["release=3.2.16", "group=g&release=3.2.16&version=1.0.0"] {
        let name = encoded(&format!("dubbo://10.0.0.10:20880/{interface}?{parameters}"));
        other
            .create_one(&format!("{}/{name}", folder(interface, "providers")), "", Lifetime::Ephemeral)
            .await?;
    }
    assert!(stored.in_service);
    let same_address = Instance { port: 20880, ..instance("1", "10.0.0.9") };
    for change in
        [Change::Register(api.clone(), same_address), Change::Deregister(api.clone(), stored.clone())]
    {
        let error = refused(write(dubbo, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }

    let out = Instance { in_service: false, ..stored.clone() };
    write(dubbo, Change::SetInService(api.clone(), out.clone())).await?;
    write(dubbo, Change::SetInService(api.clone(), out)).await?;
    let fixed = "category=configurators&disabled=true&dynamic=false&enabled=true";
    let expected = ["", "&group=g&version=1.0.0"]
        .map(|more| encoded(&format!("override://10.0.0.9:20880/{interface}?{fixed}{more}")));
    assert_eq!(other.children(&configurators).await?, expected);
    // The application itself takes the other URL out of service.
    assert!(dubbo.instance(0, &api, &stored).await?.context("it is gone")?.in_service);
    let disabled = url("disabled=true&dynamic=true&group=g&release=3.2.16&version=1.0.0");
    other.delete(&format!("{}/{versioned}", folder(interface, "providers"))).await?;
    let again = format!("{}/{disabled}", folder(interface, "providers"));
    other.create_one(&again, "", Lifetime::Ephemeral).await?;
    let read = dubbo.instance(0, &api, &stored).await?.context("it is gone")?;
    ensure!(!read.in_service && read.version != stored.version, "{read:?}");

    let back = Instance { in_service: true, ..read };
    write(dubbo, Change::SetInService(api.clone(), back.clone())).await?;
    write(dubbo, Change::SetInService(api.clone(), back.clone())).await?;
    assert_eq!(other.children(&configurators).await?, [""; 0]);
    assert!(dubbo.instance(0, &api, &stored).await?.context("it is gone")?.in_service);
    // An override of somebody else stays.
    let by_others = encoded(&format!("override://0.0.0.0/{interface}?disabled=true&group=*&version=*"));
    other.create_one(&format!("{configurators}/{by_others}"), "", Lifetime::Persistent).await?;
    assert!(!dubbo.instance(0, &api, &stored).await?.context("it is gone")?.in_service);
    let error = refused(write(dubbo, Change::SetInService(api, back)).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    assert_eq!(other.children(&configurators).await?, [by_others]);
    Ok(())
}

async fn what_cannot_be_a_url_is_rejected(dubbo: &ZooKeeper) -> Result<()> {
    let with = |key: &str, value: &str| {
        let mut instance = instance("1", "10.0.0.7");
        instance.metadata.insert(key.to_owned(), value.to_owned());
        instance
    };
    let demo = service(DEMO);
    for wrong in [
        with("weight", "100"),
        with("dynamic", "false"),
        with("a", "b&disabled=true"),
        with("a=b", "c"),
        Instance { weight: f64::NAN, ..instance("1", "10.0.0.7") },
        instance("1", "10.0.0.7/x"),
        instance("1", ""),
    ] {
        let error = refused(write(dubbo, Change::Register(demo.clone(), wrong)).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Rejected, "{error}");
    }
    assert_eq!(dubbo.instances(0, &demo).await?, []);
    Ok(())
}
