//! The client of registries with an HTTP interface of their own, against one that this test invents.

use anyhow::{Context, Result};
use podward_registries::{
    Change, Connection, Credentials, HttpCall, HttpListing, HttpOptions, HttpReading, HttpRegistry,
    HttpStatuses, Instance, Registry, RegistryErrorKind, TlsOptions,
};
use registry_servers::{InventedServer, TestCertificates};
use serde_json::json;

use crate::common::{self, connection, instance, service, write};

fn call(method: &str, path: &str, body: &str) -> Option<HttpCall> {
    Some(HttpCall {
        method: method.to_owned(),
        path: path.to_owned(),
        body: body.to_owned(),
        ..HttpCall::default()
    })
}

fn options() -> HttpOptions {
    let pointers = [
        ("id", "/id"),
        ("host", "/host"),
        ("port", "/port"),
        ("weight", "/weight"),
        ("inService", "/status"),
        ("metadata", "/metadata"),
    ];
    let register = r#"{"id": "${id}", "host": "${host}", "port": "${port}", "weight": "${weight}", "status": "${inService}",
        "metadata": "${metadata}"}"#;
    let path = "/services/${service}/instances/${id}";
    let status = "/services/${service}/instances/${id}/status";
    let gone = |call: Option<HttpCall>| {
        call.map(|call| HttpCall {
            statuses: HttpStatuses { gone: vec![404], ..HttpStatuses::default() },
            ..call
        })
    };
    HttpOptions {
        register: call("PUT", path, register),
        deregister: call("DELETE", path, ""),
        put_into_service: gone(call("PUT", status, r#"{"status": "${inService}"}"#)),
        take_out_of_service: gone(call("PUT", status, r#"{"status": "${inService}"}"#)),
        read: Some(HttpReading {
            path: "/services/${service}/instances".to_owned(),
            instances: "/instances".to_owned(),
            fields: pointers.map(|(name, at)| (name.to_owned(), at.to_owned())).into(),
            missing: vec![404],
            ..HttpReading::default()
        }),
        list: Some(HttpListing {
            path: "/services".to_owned(),
            services: "/services".to_owned(),
            name: "/name".to_owned(),
        }),
        ..HttpOptions::default()
    }
}

fn with_token(url: &str) -> Connection {
    let credentials = Credentials::Token("sesame".to_owned().into());
    Connection { credentials, ..connection(vec![url.to_owned()]) }
}

fn client(connection: &Connection, options: &HttpOptions) -> Result<HttpRegistry> {
    HttpRegistry::new(connection, options).map_err(anyhow::Error::msg)
}

/// Addresses may have a path.
async fn url_of(server: &InventedServer, certificates: Option<&TestCertificates>) -> Result<String> {
    Ok(format!("{}/api", server.start(certificates).await?))
}

async fn started() -> Result<(InventedServer, HttpRegistry)> {
    let registry = InventedServer::default();
    let url = url_of(&registry, None).await?;
    Ok((registry, client(&with_token(&url), &options())?))
}

#[tokio::test]
async fn an_instance_is_registered_steered_and_removed() -> Result<()> {
    let (registry, http) = started().await?;
    let (web, wanted) = (service("web/ü"), instance("1", "fd00::7"));
    assert_eq!(http.instances(0, &web).await?, []);
    for _ in 0..2 {
        write(&http, Change::Register(web.clone(), wanted.clone())).await?;
    }
    assert_eq!(http.instances(0, &web).await?, std::slice::from_ref(&wanted));
    let listed = http.services(0, "c1").await?;
    assert_eq!(listed.len(), 1);

    let out = Instance { in_service: false, ..wanted.clone() };
    write(&http, Change::SetInService(web.clone(), out.clone())).await?;
    assert_eq!(http.instances(0, &web).await?, [out]);
    write(&http, Change::SetInService(web.clone(), wanted.clone())).await?;
    assert_eq!(http.instance(0, &web, &wanted).await?, Some(wanted.clone()));
    for _ in 0..2 {
        write(&http, Change::Deregister(web.clone(), wanted.clone())).await?;
    }
    assert_eq!(http.instances(0, &web).await?, []);
    let error = common::refused(write(&http, Change::SetInService(web, wanted)).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    let keys = &registry.stored().keys;
    let different: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!((keys.len(), different.len()), (7, 7));
    Ok(())
}

#[tokio::test]
async fn instances_of_others_are_left_alone() -> Result<()> {
    let (registry, http) = started().await?;
    let web = service("web");
    let foreign = json!({"id": "web-1", "host": "10.0.0.1", "port": 80, "weight": 1, "status": true});
    registry.stored().instances.insert(("web".to_owned(), "web-1".to_owned()), foreign.clone());
    let ours = instance("1", "10.0.0.7");
    for change in [Change::Register(web.clone(), ours.clone()), Change::Deregister(web.clone(), ours)] {
        let error = common::refused(write(&http, change).await)?;
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    assert!(registry.stored().keys.is_empty(), "something was sent");
    let other = instance("2", "10.0.0.8");
    write(&http, Change::Register(web.clone(), other)).await?;
    // The application's own instance can be steered.
    let stored = http.instances(0, &web).await?.into_iter().find(|it| it.id == "web-1").context("gone")?;
    write(&http, Change::SetInService(web, Instance { in_service: false, ..stored })).await?;
    let stored = registry.stored().instances[&("web".to_owned(), "web-1".to_owned())].clone();
    assert_eq!((&stored["host"], &stored["status"]), (&json!("10.0.0.1"), &json!(false)));
    Ok(())
}

#[tokio::test]
async fn a_repeated_change_has_the_same_key() -> Result<()> {
    let (registry, http) = started().await?;
    let register = Change::Register(service("web"), instance("1", "10.0.0.7"));
    registry.stored().faults = vec![503, 502];
    for kind in [RegistryErrorKind::Unavailable, RegistryErrorKind::Unknown] {
        let error = common::refused(write(&http, register.clone()).await)?;
        assert_eq!(error.kind, kind, "{error}");
    }
    // The second one was made although it seemed to fail.
    assert_eq!(http.instances(0, &service("web")).await?.len(), 1);
    write(&http, register.clone()).await?;
    write(&http, register).await?;
    let keys = registry.stored().keys.clone();
    assert_eq!(keys.len(), 4);
    assert!(
        keys[0].len() == 32 && keys[..3].iter().all(|key| *key == keys[0]) && keys[3] != keys[0],
        "{keys:?}"
    );
    Ok(())
}

#[tokio::test]
async fn each_change_of_a_batch_has_its_result() -> Result<()> {
    let (_registry, http) = started().await?;
    let web = service("web");
    let mut changes: Vec<_> = (0..http.capabilities().batch)
        .map(|number| Change::Register(web.clone(), instance(&number.to_string(), "10.0.0.7")))
        .collect();
    changes[3] = Change::Register(web.clone(), Instance { id: String::new(), ..instance("3", "10.0.0.7") });
    let last = changes.len() - 1;
    changes[last] = Change::SetInService(web.clone(), instance("none", "10.0.0.8"));
    let results = http.write(&changes).await;
    let failed: Vec<_> = results
        .iter()
        .enumerate()
        .filter_map(|(at, result)| Some((at, result.as_ref().err()?.kind)))
        .collect();
    assert_eq!(failed, [(3, RegistryErrorKind::Rejected), (last, RegistryErrorKind::Conflict)]);
    assert_eq!((results.len(), http.instances(0, &web).await?.len()), (changes.len(), changes.len() - 2));
    Ok(())
}

#[tokio::test]
async fn a_status_without_a_meaning_is_not_success() -> Result<()> {
    let (registry, _) = started().await?;
    let url = url_of(&registry, None).await?;
    let blind = HttpOptions { read: None, list: None, ..options() };
    let http = client(&with_token(&url), &blind)?;
    assert!(!http.can_read() && !http.can_list());
    let change = Change::Deregister(service("web"), instance("1", "10.0.0.7"));
    // Nobody has said what 404 means here, and nothing can be read.
    let error = common::refused(write(&http, change.clone()).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Rejected, "{error}");
    assert!(error.reason.contains("say so in the call's statuses"), "{error}");

    // One of two addresses is down.
    let both = Connection { addresses: vec!["http://127.0.0.1:1".to_owned(), url], ..with_token("") };
    let http = client(&both, &options())?;
    write(&http, Change::Register(service("web"), instance("1", "10.0.0.7"))).await?;
    let error = common::refused(http.instances(0, &service("web")).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    assert_eq!(http.instances(1, &service("web")).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn credentials_and_certificates_are_checked() -> Result<()> {
    let certificates = TestCertificates::new()?;
    let url = url_of(&InventedServer::default(), Some(&certificates)).await?;
    let tls = |authority: &str| {
        Some(TlsOptions { authorities: Some(authority.to_owned()), ..TlsOptions::default() })
    };
    let with = |credentials: Credentials, authority: &str| {
        let connection = Connection { credentials, tls: tls(authority), ..connection(vec![url.clone()]) };
        client(&connection, &options())
    };
    let password = |password: &str| Credentials::Password {
        user: "ada".to_owned(),
        password: password.to_owned().into(),
    };
    let web = service("web");
    let token = |token: &str| Credentials::Token(token.to_owned().into());
    for credentials in [password("sesame"), token("sesame")] {
        write(
            &with(credentials, &certificates.authority)?,
            Change::Register(web.clone(), instance("1", "10.0.0.7")),
        )
        .await?;
    }
    for credentials in [password("wrong-one"), token("wrong-one")] {
        let http = with(credentials, &certificates.authority)?;
        let read = common::refused(http.instances(0, &web).await)?;
        let change = Change::Register(web.clone(), instance("2", "10.0.0.8"));
        for error in [read, common::refused(write(&http, change).await)?] {
            assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
            let text = format!("{error} {http:?}");
            assert!(!text.contains("wrong-one") && !text.contains("YWRhOndyb25nLW9uZQ"), "{text}");
        }
    }
    let other = TestCertificates::new()?.authority;
    let error = common::refused(with(token("sesame"), &other)?.instances(0, &web).await)?;
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    Ok(())
}

/// Not what the options describe.
#[tokio::test]
async fn answers_of_something_else_are_errors() -> Result<()> {
    for (answer, kind) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull", RegistryErrorKind::Invalid),
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", RegistryErrorKind::Invalid),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}", RegistryErrorKind::Unknown),
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", RegistryErrorKind::Unavailable),
        (
            "HTTP/1.1 302 No\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            RegistryErrorKind::Rejected,
        ),
    ] {
        let url = crate::http::serve_always(answer).await?;
        let error =
            common::refused(client(&with_token(&url), &options())?.instances(0, &service("web")).await)?;
        assert_eq!(error.kind, kind, "{answer}: {error}");
    }
    Ok(())
}
