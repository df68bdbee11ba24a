//! The client of Eureka against Eureka.

use std::time::Duration;

use anyhow::{Context, Result};
use podward_registries::{
    Change, Connection, Credentials, Eureka, EurekaOptions, Instance, Registry, RegistryErrorKind,
};
use registry_servers::EurekaServer;
use serde_json::json;

use crate::common::{self, connection, owner, service, write};
use crate::http;

fn client(connection: &Connection) -> Result<Eureka> {
    // Nothing expires during a test, however slow the machine is.
    let options = EurekaOptions { lease: Duration::from_secs(600), ..EurekaOptions::default() };
    Eureka::new(connection, options).map_err(anyhow::Error::msg)
}

/// Eureka stores no weights.
fn instance(uid: &str, host: &str) -> Instance {
    Instance { weight: 1.0, ..common::instance(uid, host) }
}

/// Each server is a Java process, so one serves several tests, one after the other. Each uses names of its own.
#[tokio::test]
async fn eureka_does_what_the_client_says() -> Result<()> {
    let mut server = EurekaServer::start().await?;
    let eureka = client(&connection(vec![server.url()]))?;
    an_instance_is_registered_steered_renewed_and_removed(&server, &eureka).await?;
    instances_of_others_are_only_steered(&server, &eureka).await?;
    an_application_that_is_down_is_taken_out_of_service(&server, &eureka).await?;
    an_instance_of_podward_that_is_set_to_down_is_put_back(&server, &eureka).await?;
    an_instance_of_podward_without_an_override_is_put_back(&server, &eureka).await?;
    a_batch_is_written(&eureka).await?;
    a_server_that_was_empty_knows_no_registrations(&mut server, &eureka).await
}

async fn an_instance_is_registered_steered_renewed_and_removed(
    server: &EurekaServer,
    eureka: &Eureka,
) -> Result<()> {
    let (web, wanted) = (service("web shop"), instance("1", "10.0.0.7"));
    let read = async || eureka.instance(0, &web, &wanted).await;
    assert_eq!(read().await?, None);
    assert_eq!(eureka.renew(&[(web.clone(), wanted.clone())]).await, [Ok(false)]);
    write(eureka, Change::Register(web.clone(), wanted.clone())).await?;
    // The same again.
    write(eureka, Change::Register(web.clone(), wanted.clone())).await?;
    assert_eq!(read().await?.as_ref(), Some(&wanted));
    assert_eq!(read().await?.and_then(|it| it.owner()), Some(owner("1")));
    // The first lists of these names are not in the server's cache yet.
    assert_eq!(common::only(eureka.instances(0, &web).await?)?, wanted);
    assert!(eureka.services(0, "c1").await?.contains(&eureka.canonical(web.clone())));
    assert_eq!(eureka.renew(&[(web.clone(), wanted.clone())]).await, [Ok(true)]);

    let out = Instance { in_service: false, ..wanted.clone() };
    write(eureka, Change::SetInService(web.clone(), out.clone())).await?;
    assert_eq!(read().await?, Some(out.clone()));
    // A renewal of the application does not put it back.
    http::put(&format!("{}/apps/web%20shop/web-1?status=UP", server.url()), &json!({})).await?;
    assert_eq!(read().await?, Some(out));
    write(eureka, Change::SetInService(web.clone(), wanted.clone())).await?;
    assert_eq!(read().await?.as_ref(), Some(&wanted));

    write(eureka, Change::Deregister(web.clone(), wanted.clone())).await?;
    write(eureka, Change::Deregister(web.clone(), wanted.clone())).await?;
    assert_eq!(read().await?, None);
    let error = common::refused(write(eureka, Change::SetInService(web, wanted)).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    Ok(())
}

async fn instances_of_others_are_only_steered(server: &EurekaServer, eureka: &Eureka) -> Result<()> {
    let (api, ours) = (service("api"), instance("2", "10.0.0.8"));
    let foreign = json!({"instance": {
        "instanceId": ours.id, "hostName": "other", "app": "API", "ipAddr": "10.0.0.9", "vipAddress": "api",
        "status": "UP", "port": {"$": 80, "@enabled": "true"},
        "dataCenterInfo": {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
    }});
    http::post(&format!("{}/apps/API", server.url()), &foreign).await?;
    let stored = common::only(eureka.instances(0, &api).await?)?;
    assert_eq!((stored.owner(), stored.host.as_str(), stored.port), (None, "10.0.0.9", 80));
    for change in [Change::Register(api.clone(), ours.clone()), Change::Deregister(api.clone(), ours)] {
        let error = common::refused(write(eureka, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    let out = Instance { in_service: false, ..stored.clone() };
    write(eureka, Change::SetInService(api.clone(), out.clone())).await?;
    assert_eq!(eureka.instance(0, &api, &stored).await?, Some(out));
    write(eureka, Change::SetInService(api.clone(), stored.clone())).await?;
    assert_eq!(eureka.instance(0, &api, &stored).await?, Some(stored));
    Ok(())
}

/// It reports that it is down, and up again while it is taken out of service.
async fn an_application_that_is_down_is_taken_out_of_service(
    server: &EurekaServer,
    eureka: &Eureka,
) -> Result<()> {
    let sick = service("sick");
    let report = async |status: &str, dirty: u64| {
        let instance = json!({"instance": {
            "instanceId": "sick-1", "hostName": "sick", "app": "SICK", "ipAddr": "10.0.0.6", "vipAddress": "sick",
            "status": status, "port": {"$": 80, "@enabled": "true"}, "lastDirtyTimestamp": dirty.to_string(),
            "dataCenterInfo": {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
        }});
        http::post(&format!("{}/apps/SICK", server.url()), &instance).await
    };
    report("DOWN", 1).await?;
    let wanted = Instance { id: "sick-1".to_owned(), ..instance("6", "10.0.0.6") };
    let read = async || eureka.instance(0, &sick, &wanted).await?.context("it is gone");
    let down = read().await?;
    assert_eq!((down.in_service, down.may_return), (false, true));
    write(eureka, Change::SetInService(sick.clone(), Instance { may_return: false, ..down.clone() })).await?;
    for (status, dirty) in [("DOWN", 2), ("UP", 3)] {
        report(status, dirty).await?;
        assert!(read().await?.is_held_out(), "{status}");
    }
    let back = Change::SetInService(sick.clone(), Instance { in_service: true, ..down });
    write(eureka, back.clone()).await?;
    assert!(read().await?.in_service);

    // It starts while it is taken out of service, and is not up before it says so.
    let out = Change::SetInService(sick.clone(), Instance { in_service: false, ..wanted.clone() });
    write(eureka, out).await?;
    report("STARTING", 4).await?;
    assert!(read().await?.is_held_out());
    write(eureka, back).await?;
    let starting = read().await?;
    assert_eq!((starting.in_service, starting.may_return), (false, true));
    // Eureka has its application report the status.
    assert_eq!(eureka.renew(&[(sick.clone(), wanted.clone())]).await, [Ok(false)]);
    report("STARTING", 4).await?;
    assert!(read().await?.may_return);
    report("UP", 5).await?;
    assert!(read().await?.in_service);
    Ok(())
}

/// It has no application that would register its status again.
async fn an_instance_of_podward_that_is_set_to_down_is_put_back(
    server: &EurekaServer,
    eureka: &Eureka,
) -> Result<()> {
    let (own, wanted) = (service("own"), instance("3", "10.0.0.3"));
    let read = async || eureka.instance(0, &own, &wanted).await?.context("it is gone");
    write(eureka, Change::Register(own.clone(), wanted.clone())).await?;
    http::put(&format!("{}/apps/OWN/web-3/status?value=DOWN", server.url()), &json!({})).await?;
    let down = read().await?;
    assert!(!down.in_service);
    write(eureka, Change::SetInService(own.clone(), Instance { in_service: true, ..down })).await?;
    assert!(read().await?.in_service);
    Ok(())
}

/// Somebody takes it out of service, and removes the override without a status.
async fn an_instance_of_podward_without_an_override_is_put_back(
    server: &EurekaServer,
    eureka: &Eureka,
) -> Result<()> {
    let (own, wanted) = (service("released"), instance("4", "10.0.0.4"));
    let status = format!("{}/apps/RELEASED/web-4/status", server.url());
    let read = async || eureka.instance(0, &own, &wanted).await?.context("it is gone");
    let set = async |in_service| {
        let change = Change::SetInService(own.clone(), Instance { in_service, ..read().await? });
        anyhow::Ok(write(eureka, change).await?)
    };
    let renewed = async || eureka.renew(&[(own.clone(), wanted.clone())]).await;
    write(eureka, Change::Register(own.clone(), wanted.clone())).await?;
    http::put(&format!("{status}?value=OUT_OF_SERVICE"), &json!({})).await?;
    // Also what Podward has set is removed by others, and it is taken out of service by Podward in between.
    for _ in 0..2 {
        http::delete(&status).await?;
        assert!(!read().await?.in_service);
        set(true).await?;
        assert!(read().await?.in_service);
        set(false).await?;
        assert_eq!(renewed().await, [Ok(true)]);
        assert!(read().await?.is_held_out());
        set(true).await?;
        assert_eq!(renewed().await, [Ok(true)]);
        assert!(read().await?.in_service);
    }
    Ok(())
}

async fn a_batch_is_written(eureka: &Eureka) -> Result<()> {
    let many = service("many");
    let batch = eureka.capabilities().batch;
    let all: Vec<Instance> = (0..batch).map(|number| instance(&number.to_string(), "10.0.1.1")).collect();
    let mut changes: Vec<Change> =
        all.iter().map(|instance| Change::Register(many.clone(), instance.clone())).collect();
    changes[5] = Change::SetInService(many.clone(), instance("missing", "10.0.1.2"));
    let failed: Vec<usize> = eureka
        .write(&changes)
        .await
        .iter()
        .enumerate()
        .filter_map(|(at, result)| result.is_err().then_some(at))
        .collect();
    assert_eq!(failed, [5]);
    assert_eq!(eureka.instances(0, &many).await?.len(), batch - 1);
    let renewals: Vec<(_, _)> = all.into_iter().map(|instance| (many.clone(), instance)).collect();
    let renewed = eureka.renew(&renewals).await;
    assert_eq!(renewed.iter().filter(|result| **result == Ok(true)).count(), batch - 1);
    assert_eq!(renewed[5], Ok(false));
    Ok(())
}

async fn a_server_that_was_empty_knows_no_registrations(
    server: &mut EurekaServer,
    eureka: &Eureka,
) -> Result<()> {
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    write(eureka, Change::Register(web.clone(), wanted.clone())).await?;
    server.process.stop().await?;
    let error = common::refused(eureka.instances(0, &web).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    let renewed = eureka.renew(&[(web.clone(), wanted.clone())]).await.remove(0);
    assert_eq!(common::refused(renewed)?.kind, RegistryErrorKind::Unavailable);
    server.process.restart_empty().await?;
    assert_eq!(eureka.instances(0, &web).await?, []);
    assert_eq!(eureka.renew(&[(web, wanted)]).await, [Ok(false)]);
    Ok(())
}

#[tokio::test]
async fn every_peer_shows_a_change() -> Result<()> {
    let mut servers = EurekaServer::start_two().await?;
    let eureka = client(&connection(servers.iter().map(EurekaServer::url).collect()))?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    let until_shown = async |address: usize| {
        let shown = async {
            while !eureka.instance(address, &web, &wanted).await.is_ok_and(|found| found.is_some()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), shown).await.context("an address does not show it")
    };
    write(&eureka, Change::Register(web.clone(), wanted.clone())).await?;
    until_shown(0).await?;
    until_shown(1).await?;
    // Writes go to the other one.
    servers[0].process.stop().await?;
    let out = Instance { in_service: false, ..wanted.clone() };
    write(&eureka, Change::SetInService(web.clone(), out.clone())).await?;
    assert_eq!(eureka.instance(1, &web, &wanted).await?, Some(out));
    let error = eureka.instance(0, &web, &wanted).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    Ok(())
}

/// Heartbeats do not end because the first address is dead.
#[tokio::test]
async fn an_address_that_does_not_answer_is_not_called_first_again() -> Result<()> {
    // It accepts connections, and nothing else.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let addresses = vec![
        format!("http://{}", silent.local_addr()?),
        http::serve_always("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?,
    ];
    let eureka = client(&Connection { timeout: Duration::from_millis(300), ..connection(addresses) })?;
    let renewed = async || eureka.renew(&[(service("web"), instance("1", "10.0.0.7"))]).await.remove(0);
    assert_eq!(common::refused(renewed().await)?.kind, RegistryErrorKind::Unknown);
    for _ in 0..3 {
        assert_eq!(renewed().await, Ok(true));
    }
    Ok(())
}

/// One that cannot serve answers quickly, and for as long as it cannot.
#[tokio::test]
async fn an_address_that_cannot_serve_is_not_called_first_again() -> Result<()> {
    for status in [
        "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n",
    ] {
        let addresses = vec![
            http::serve_always(status).await?,
            http::serve_always("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?,
        ];
        let eureka = client(&connection(addresses))?;
        let renewed = async || eureka.renew(&[(service("web"), instance("1", "10.0.0.7"))]).await.remove(0);
        assert!(renewed().await.is_err(), "{status}");
        for _ in 0..3 {
            assert_eq!(renewed().await, Ok(true), "{status}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn answers_of_something_else_are_errors() -> Result<()> {
    let web = service("web");
    for (body, kind) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", RegistryErrorKind::Invalid),
        (
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
            RegistryErrorKind::Unknown,
        ),
        ("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", RegistryErrorKind::Denied),
        ("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", RegistryErrorKind::Unavailable),
    ] {
        let credentials =
            Credentials::Password { user: "eureka".to_owned(), password: "sesame".to_owned().into() };
        let connection = Connection { credentials, ..connection(vec![http::serve_always(body).await?]) };
        let eureka = client(&connection)?;
        let error = eureka.instances(0, &web).await.unwrap_err();
        assert_eq!(error.kind, kind, "{body}: {error}");
        assert!(!error.to_string().contains("sesame") && !format!("{eureka:?}").contains("sesame"));
    }
    let elsewhere =
        client(&connection(vec![http::serve_always("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n").await?]))?;
    let error = elsewhere.services(0, "c1").await.unwrap_err();
    assert!(error.reason.contains("/eureka"), "{error}");
    Ok(())
}
